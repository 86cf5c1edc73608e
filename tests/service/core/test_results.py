"""Results of several parts as one."""

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
