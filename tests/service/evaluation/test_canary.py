import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.core.results import TopK
from shortlist.errors import BundleError
from shortlist.evaluation.canary import are_as_near, check_canary
from shortlist.head import Head


@pytest.fixture
def bundle(small_repository):
    return Bundle(small_repository / "lm" / "1")


def test_a_healthy_head_passes(bundle):
    assert check_canary(Head(bundle, "cpu", 1), bundle) > 0.5


def test_other_answers_fail(bundle):
    """As a kernel that saturates would: the same graphs, another result."""
    head = Head(bundle, "cpu", 1)
    rows = head.plan.exact_rows
    head.plan.exact_rows = lambda contexts, ids: -rows(contexts, ids)
    with pytest.raises(BundleError, match="failed its canary on cpu"):
        check_canary(head, bundle)


def test_a_class_lost_at_an_edge_is_no_failure_though_it_moves_others_up(bundle, monkeypatch):
    head = Head(bundle, "cpu", 1)
    whole = head.topk_by_plan

    def without(rows, first):
        top = whole(rows, 11)
        ids, logprobs = (np.concatenate([part[:first, 1:], part[first:, :10]]) for part in (top.ids, top.logprobs))
        return TopK(ids, logprobs, top.scored, top.normalizer)

    monkeypatch.setattr(head, "topk_by_plan", lambda rows, _: without(rows, 1))
    assert check_canary(head, bundle) > 0.5
    monkeypatch.setattr(head, "topk_by_plan", lambda rows, _: without(rows, len(rows)))
    with pytest.raises(BundleError, match=r"90.0% of the calibration's classes came back"):
        check_canary(head, bundle)


def test_other_logprobs_fail(bundle):
    head = Head(bundle, "cpu", 1)
    head.plan = head.plan.with_settings(head.plan.settings.model_copy(update={"tail_shift": 30.0}))
    with pytest.raises(BundleError, match="log-probabilities off"):
        check_canary(head, bundle)


def test_not_a_number_fails(bundle):
    head = Head(bundle, "cpu", 1)
    rows = head.plan.exact_rows
    head.plan.exact_rows = lambda contexts, ids: rows(contexts, ids) * np.float32(np.nan)
    with pytest.raises(BundleError):
        check_canary(head, bundle)


def test_estimates_may_be_others_that_are_as_near_to_exact_ones():
    """As those of graphs in place of loops, which estimate normalisers their own way."""
    ids = np.arange(60).reshape(20, 3)
    exact = np.tile(np.array([-0.5, -1.0, -2.0], np.float32), (20, 1))
    errors = np.linspace(-0.2, 0.2, 20, dtype=np.float32)[:, None]  # of the normalisers, so of whole rows
    calibration = {"ids": ids, "head_ids": ids, "logprobs": exact, "head_logprobs": exact + errors}
    hits = np.ones(ids.shape, bool)
    for near in (exact, exact - errors, exact + 2 * errors):
        assert are_as_near(near, calibration, hits)
    for far in (exact + 3 * errors, exact + errors * [0, 0, 1], np.full_like(exact, np.nan)):
        assert not are_as_near(far, calibration, hits)
    assert not are_as_near(exact, calibration, ~hits), "of no class that came back is anything known"
