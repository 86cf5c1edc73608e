import pytest
from shortlist.bundle.manifest import Quality
from shortlist.evaluation.statistics import Share, bound_mean
from shortlist_exporter.records.report import CALIBRATION_SAMPLE, HELD_OUT, Domain, TuneTrials
from shortlist_exporter.report import verdict

QUALITY = Quality(
    rows=9, p_at_1=0.9, p_at_5=0.8, p_at_10=0.7, logprob_error_mean=0, logprob_error_p99=0, cost_macs=1, cost_bytes=1
)


def domain(name, mean=None, half=0.01):
    shares = {} if mean is None else {1: Share(mean=mean, low=mean - half, high=mean + half)}
    return Domain(name=name, rows=1000, precision=shares, error_mean=None, error_p99=None, documents=[], broken=[])


def judge(promise, *domains):
    return verdict.give_verdict([verdict.judge_domain(one, promise) for one in domains], promise, "asked for")


@pytest.mark.parametrize(("mean", "status"), [(0.99, "kept"), (0.9801, "kept"), (0.9799, "broken")])
def test_only_an_interval_wholly_under_the_promise_breaks_it(mean, status):
    assert judge({1: 0.99}, domain("here", mean, 0.01)).status == status


def test_both_kinds_in_one_sentence():
    result = judge({1: 0.95}, domain("news", 0.97), domain("code", 0.6))
    assert result.heading == "Promise not kept on code"
    assert result.sentence == (
        "P@1 0.95, asked for, holds within sampling error on news (1,000 rows); "
        "it does not hold on code: P@1 is 0.6000 (0.5900 to 0.6100), 0.95 promised"
    )


def test_samples_are_listed_as_a_sentence_lists_them():
    kept = [domain("news", 0.97), domain("law", 0.97), domain("old", 0.97).model_copy(update={"rows": 1})]
    failed = [domain(name, 0.6) for name in ("code", "poems", "logs")]
    result = judge({1: 0.95}, *kept, *failed)
    assert result.heading == "Promise not kept on code, poems and logs"
    assert " on news (1,000 rows), law (1,000 rows) and old (1 row); it does " in result.sentence


def test_what_was_not_measured_is_not_said_to_hold():
    assert judge({1: 0.95, 20: 0.9}, domain("news", 0.97)).sentence == (
        "P@1 0.95, asked for, holds within sampling error on news (1,000 rows)"
    )
    assert judge({20: 0.9}, domain("news", 0.97)).status == "unknown"


def test_nothing_to_hold_it_against():
    assert judge({1: 0.95}, domain("news")).status == "unknown"
    assert judge({}, domain("news", 0.9)).status == "unknown"


def test_whose_promise_it_is():
    trials = TuneTrials(targets={1: 0.99}, batch=1, sentence="", points=[])
    assert verdict.choose_promise(QUALITY, {5: 0.5}, trials) == ({5: 0.5}, verdict.REQUEST_SOURCE)
    assert verdict.choose_promise(QUALITY, {}, trials) == ({1: 0.99}, verdict.TUNE_SOURCE)
    own, source = verdict.choose_promise(QUALITY, {}, None)
    assert source == verdict.EXPORT_SOURCE
    assert own == {1: bound_mean(0.9, 9).low, 5: bound_mean(0.8, 9).low}, "nine rows say little"
    assert verdict.choose_promise(None, {}, None)[0] == {}


def test_what_a_head_searches_by_is_its_promise_however_little_was_measured():
    """A head that searched for .99 and reached .9 at its export was said to keep its promise at .9."""
    assert verdict.choose_promise(QUALITY, {}, None, 0.99) == ({1: 0.99, 5: 0.99}, verdict.HEAD_SOURCE)
    assert verdict.choose_promise(QUALITY, {5: 0.5}, None, 0.99) == ({5: 0.5}, verdict.REQUEST_SOURCE)


def test_own_rows():
    assert verdict.are_own_rows([domain(HELD_OUT), domain(CALIBRATION_SAMPLE)])
    assert not verdict.are_own_rows([domain(HELD_OUT), domain("news")])


def test_what_is_not_checked_says_why_and_how_to_check_it():
    """All had one sentence, which did not say what to do."""
    assert "has no dense head" in judge({1: 0.95}, domain("news")).sentence
    assert "export it without --no-dense" in judge({1: 0.95}, domain("news")).sentence
    assert "`shortlist report` with --contexts" in judge({20: 0.9}, domain("news", 0.97)).sentence
    assert "with --min-p1" in judge({}, domain("news", 0.9)).sentence
