"""`shortlist evaluate` on layers and contexts of every kind, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.evaluation.evaluator import evaluate

from tests.support.evaluation import CONTEXTS, OPTIONS, TARGETS
from tests.support.layers import (
    CLASSES,
    logprobs_of,
    make_dense,
    make_head,
)

pytestmark = pytest.mark.slow


def test_the_dense_layer_itself(tmp_path):
    full = make_head(tmp_path, make_dense(), method="full", options={})
    evaluation = evaluate(full, CONTEXTS, TARGETS)
    assert [share.mean for share in evaluation.precision.values()] == [1, 1, 1]
    assert evaluation.coverage == {10: 10, 50: 50, 100: 100}
    assert (evaluation.order_kept, evaluation.answered_dense, evaluation.warning) == (1, 1, None)
    assert evaluation.kl == {"mean": 0, "p99": 0}
    assert evaluation.z_ratio == pytest.approx({"mean": 1, "p1": 1, "p99": 1}, abs=1e-5)
    head, dense = evaluation.head_targets, evaluation.dense_targets
    assert (head.accuracy, head.nll, head.perplexity) == (dense.accuracy, dense.nll, dense.perplexity)
    assert head.scored_nll == pytest.approx(dense.nll, rel=1e-5)


def test_padding_bias_and_cap(tmp_path):
    bias = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
    dense = make_dense(bias=bias, logit_scale=0.5, soft_cap=4.0, padded=np.array([0, 299]))
    head = make_head(tmp_path, dense, options=OPTIONS)
    evaluation = evaluate(head, CONTEXTS, np.full(150, 7))
    log_p = logprobs_of(dense, CONTEXTS)
    assert evaluation.dense_targets.nll == pytest.approx(-log_p[:, 7].mean(), rel=1e-4)
    assert 0 < evaluation.kl["mean"] < 1
    with pytest.raises(BadInput, match="class 299, which is padding"):
        evaluate(head, CONTEXTS, np.full(150, 299))


def test_fewer_classes_than_are_asked_for(tmp_path):
    head = make_head(tmp_path, make_dense(), options=OPTIONS, max_k=6)
    evaluation = evaluate(head, CONTEXTS, TARGETS)
    assert list(evaluation.precision) == list(evaluation.promised) == list(evaluation.head_targets.accuracy) == [1, 5]
    assert evaluation.coverage is None


huge = CONTEXTS.copy()
huge[77] = 3e38
contexts_with_nan = CONTEXTS.copy()
contexts_with_nan[3, 2] = np.nan


@pytest.mark.parametrize(
    ("contexts", "targets", "options", "sentence"),
    [
        (CONTEXTS[:, :9], None, {}, r"shape \[150, 9\] but lm takes \[rows, 16\]"),
        (CONTEXTS[:0], None, {}, "contexts have no rows"),
        (contexts_with_nan, None, {}, "row 3 holds NaN"),
        (huge, None, {}, "contexts row 77 is so large"),
        (CONTEXTS, None, {"rows": 0}, "rows is 0"),
        (CONTEXTS, TARGETS[:9], {}, r"targets have shape \[9\] for 150 contexts"),
        (CONTEXTS, TARGETS * 1.0, {}, "targets are float64"),
        (CONTEXTS, np.full(150, 300), {}, "targets row 0 is 300 but classes go from 0 to 299"),
        (CONTEXTS, np.r_[TARGETS[1:], -100], {}, "targets row 149 is -100"),
    ],
)
def test_bad_input(narrow_head, contexts, targets, options, sentence):
    with pytest.raises(BadInput, match=sentence):
        evaluate(narrow_head, contexts, targets, **options)


def test_a_single_row(narrow_head):
    evaluation = evaluate(narrow_head, CONTEXTS[:1])
    assert evaluation.rows == 1
    assert evaluation.precision[1].high - evaluation.precision[1].low > 0.5, "one row shows little"
    assert evaluation.warning is None


def test_previews_that_overflow_name_the_row_of_the_file(narrow_head, monkeypatch):
    previews = narrow_head.plan.preview

    def overflow(context):
        logits = previews(context=context)[0]
        logits[(context == CONTEXTS[33]).all(axis=1), 7] = np.inf
        return [logits]

    monkeypatch.setattr(narrow_head.plan, "preview", overflow)
    with pytest.raises(BadInput, match="contexts row 33 is so large that its scores overflow"):
        evaluate(narrow_head, CONTEXTS)
