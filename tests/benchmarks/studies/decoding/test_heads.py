"""The choice among heads that were tried."""

from benchmarks.studies.decoding.heads import Trial, choose_trial


def test_the_one_that_changes_least_of_those_that_are_cheap_enough_is_chosen():
    trials = [Trial("a", 0, 0.004, 0.1), Trial("b", 0, 0.001, 0.2), Trial("c", 0, 0.5, 0.01)]
    assert choose_trial(trials, 0.1).method == "a"
    assert choose_trial(trials, 0.2).method == "b"
    assert choose_trial(trials, 0.001).method == "c"
