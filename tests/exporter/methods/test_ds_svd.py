"""Method ds-svd: previews inside large experts."""

import numpy as np
import pytest
import torch
from shortlist.errors import BadInput
from shortlist.evaluation.evaluator import evaluate
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.registry import METHODS

from tests.support.heads.ds import SVD, contexts, dense, exported, rows
from tests.support.searches import check_rows_alone

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["context", "weight"])
def previewed(request, module, tmp_path_factory):
    options = SVD | {"basis": request.param}
    return exported(tmp_path_factory.mktemp("ds-svd"), module, "ds-svd", options), options


def test_previewed_experts_agree_with_torch(previewed, module):
    head, options = previewed
    fitted = METHODS["ds-svd"].restore(dense, module.state_dict(), Contexts(contexts.contexts[:1080]), options)
    ids, logprobs = fitted.module.topk(torch.from_numpy(rows), 5)
    top = head.topk(rows, 5)
    np.testing.assert_array_equal(top.ids, ids.numpy())
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)
    assert set(top.scored.tolist()) == {25}
    assert top.normalizer == "estimated"
    assert head.manifest.quality.cost_macs > 0
    assert head.manifest.fit["previewed"] == [0, 1, 3]


def test_exact_answers_of_previewed_experts_score_them_whole(previewed, module):
    head, _ = previewed
    top = head.topk(rows, 5, exact=True)
    ids, logprobs = module.topk(torch.from_numpy(rows), 5)
    np.testing.assert_array_equal(top.ids, ids.numpy())
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)
    assert top.normalizer == "exact"


def test_previews_as_large_as_their_expert_are_exact(module, tmp_path):
    whole = exported(tmp_path, module, "ds-svd", SVD | {"full_view": "90"})
    top = whole.topk(rows, 5)
    ids, logprobs = module.topk(torch.from_numpy(rows), 5)
    np.testing.assert_array_equal(top.ids, ids.numpy())
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)


def test_previews_are_not_rounded_too(tmp_path, module):
    with pytest.raises(BadInput, match="option int8 exists for method ds only: leave it out"):
        exported(tmp_path, module, "ds-svd", SVD | {"int8": "true"})


def test_experts_without_a_large_one_say_so(tmp_path, module):
    head = exported(tmp_path, module, "ds-svd", {"over": "100"})
    assert "no expert has over 100 classes" in head.manifest.provenance["notes"][0]
    assert head.topk(rows, 5).ids.shape == (60, 5)


def test_a_row_alone_equals_the_row_in_a_batch(previewed):
    check_rows_alone(previewed[0], rows, step=7, atol=1e-4)


def test_evaluate_holds_it_against_itself(previewed):
    less = evaluate(previewed[0], contexts.contexts[-100:], contexts.targets[-100:])
    assert 0.5 < less.precision[10].mean < 1 or previewed[1]["basis"] == "context"
    assert less.kl["mean"] == pytest.approx(0, abs=1e-6)
