"""What figures on other contexts say of an export's promise."""

from shortlist.evaluation.promise import warn_of_promise
from shortlist.evaluation.statistics import Share


def test_a_promise_is_no_surer_than_the_rows_that_it_was_measured_on():
    here = {1: Share(mean=0.9978, low=0.996, high=0.9988)}
    assert warn_of_promise(here, {1: 1.0}, 500) is None, "no miss in 500 rows may be chance"
    sentence = "these contexts are not like those that the bundle was measured on: P@1 is 0.9978 here, lower than the "
    assert warn_of_promise(here, {1: 1.0}, 50_000) == f"{sentence}1.0000 promised"


def test_a_promise_that_held_out_contexts_did_not_keep_is_held_against_these_too():
    """The export measured .95 where the head searches for .99, and .95 here was no breach."""
    here = {1: Share(mean=0.95, low=0.94, high=0.96), 5: Share(mean=0.98, low=0.97, high=0.991)}
    measured = {1: 0.95, 5: 0.98}
    assert warn_of_promise(here, measured, 400) is None
    sentence = "the head searches for 0.99 and does not keep it here: P@1 is 0.9500"
    assert warn_of_promise(here, measured, 400, 0.99) == sentence
    assert warn_of_promise(here, {1: 0.999, 5: 0.98}, 4000, 0.99).endswith(f"than the 0.9990 promised; {sentence}")
