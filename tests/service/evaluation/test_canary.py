import numpy as np
import pytest
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.results import TopK
from shortlist.errors import BundleError
from shortlist.evaluation.canary import MAX_ERROR_NATS, check_canary
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


def test_better_answers_pass_and_worse_ones_fail(bundle, monkeypatch):
    """As of graphs in place of loops, or of loops in place of graphs, which estimate normalisers their own way."""
    head, calibration = Head(bundle, "cpu", 1), bundle.tensors(CALIBRATION_FILE)
    ids, exact = calibration["ids"], calibration["logprobs"]
    own = np.take_along_axis(exact, (calibration["head_ids"][:, :, None] == ids[:, None, :]).argmax(axis=2), axis=1)
    error = np.abs(calibration["head_logprobs"] - own).max()
    assert error > 2 * MAX_ERROR_NATS

    def answer(logprobs):
        top = TopK(ids, logprobs.astype(np.float32), np.full(len(ids), 40), "estimated")
        monkeypatch.setattr(head, "topk_by_plan", lambda rows, _: top)
        return check_canary(head, bundle)

    assert answer(exact) == 1
    for worse in (exact - error - MAX_ERROR_NATS, exact + np.linspace(0, 2 * error, exact.shape[1])):
        with pytest.raises(BundleError, match="log-probabilities off"):
            answer(worse)
