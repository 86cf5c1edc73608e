"""Results of several parts as one."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist.core.results import PlanResult, TopK


def make_topk(rows, first, normalizer):
    ids = np.arange(first, first + 2 * rows).reshape(rows, 2)
    return TopK(ids, -ids.astype(np.float32), np.arange(first, first + rows, dtype=np.int32), normalizer)


def test_rows_are_concatenated_in_order():
    parts = [make_topk(2, 0, "exact"), make_topk(1, 10, "exact")]
    whole = TopK.concat(parts)
    for name in ("ids", "logprobs", "scored"):
        np.testing.assert_array_equal(getattr(whole, name), np.concatenate([getattr(part, name) for part in parts]))
    assert whole.normalizer == "exact"
    assert TopK.concat(parts[:1]) is parts[0]


@pytest.mark.parametrize(
    ("normalizers", "weakest"),
    [(("exact", "bounded"), "bounded"), (("shortlist", "exact"), "shortlist"), (("bounded", "estimated"), "estimated")],
)
def test_the_weakest_normalizer_holds_for_all(normalizers, weakest):
    assert TopK.concat([make_topk(1, 0, normalizer) for normalizer in normalizers]).normalizer == weakest


def test_results_of_a_plan_are_concatenated_in_order():
    def make_result(rows, first):
        top = make_topk(rows, first, "exact")
        return PlanResult(top.ids, top.logprobs, top.scored.astype(np.float32), top.scored)

    parts = [make_result(1, 0), make_result(2, 5)]
    whole = PlanResult.concat(parts)
    for name in ("ids", "logits", "log_normalizer", "scored"):
        np.testing.assert_array_equal(getattr(whole, name), np.concatenate([getattr(part, name) for part in parts]))
    assert PlanResult.concat(parts[1:]) is parts[1]


def make_row(risk):
    """A result of one row and two classes, at this risk."""
    known = None if risk is None else np.array([risk], np.float32)
    return PlanResult(np.zeros((1, 2), int), np.zeros((1, 2), np.float32), np.zeros(1), np.ones(1, int), risk=known)


@pytest.mark.parametrize("join", ["concat", "put"])
@pytest.mark.parametrize(("risks", "expected"), [((None, 0.25), [np.nan, 0.25]), ((0.5, None), [0.5, np.nan])])
def test_each_row_keeps_its_risk_beside_rows_without(join, risks, expected):
    parts = [make_row(risk) for risk in risks]
    whole = PlanResult.concat([parts[0], make_row(risks[0])] if join == "put" else parts)
    if join == "put":
        whole.put([1], parts[1])
    np.testing.assert_array_equal(whole.risk, np.array(expected, np.float32))


def test_results_without_risks_have_none_together():
    whole = PlanResult.concat([make_row(None), make_row(None)])
    whole.put([1], make_row(None))
    assert whole.risk is None


def test_rows_that_dense_answered_have_a_risk_of_zero():
    risk = np.array([np.nan, np.nan, 0.5], np.float32)
    top = TopK(np.zeros((3, 1), int), np.zeros((3, 1)), np.array([9, 2, 2]), "estimated", risk=risk)
    np.testing.assert_array_equal(top.complete_risk(9), np.array([0, np.nan, 0.5], np.float32))


@pytest.mark.parametrize(
    ("field", "value"),
    [("ids", np.ones((2, 1), int)), ("logprobs", np.zeros((2, 2), np.float32)), ("normalizer", "estimated"),
     ("labels", None), ("labels", np.array([["a", "b"], ["c", "d"]], object)), ("risk", None), ("promise", 0.9)],
)  # fmt: skip
def test_answers_are_equal_where_all_of_them_is(field, value):
    """Two answers of several rows could not be compared: the truth of an array is ambiguous."""
    labels, risk = np.array([["a", "b"], ["c", None]], object), np.array([0.1, np.nan], np.float32)
    one, other = (replace(make_topk(2, 0, "exact"), labels=labels.copy(), risk=risk.copy()) for _ in range(2))
    assert one == other
    assert one != replace(other, **{field: value})
    assert one != 1
