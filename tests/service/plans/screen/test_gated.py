"""Which scorer a gate's rows go to."""

import numpy as np
import pytest
import torch
from shortlist.errors import BadInput
from shortlist.plans.screen.gated import MAX_FUSED_ROWS, MAX_LOOP_ROWS
from shortlist_models.ds.softmax import DSOptions, DSSoftmax

from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

SIZES = (40, 90, 25, 60)
contexts = make_contexts(400)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    random = torch.Generator().manual_seed(0)
    ids = [torch.randperm(CLASSES, generator=random)[:size].sort().values for size in SIZES]
    weight, bias = torch.randn(sum(SIZES), DIM, generator=random), torch.randn(sum(SIZES), generator=random)
    module = DSSoftmax(weight, bias, torch.randn(len(SIZES), DIM, generator=random), ids, CLASSES, DSOptions())
    return make_head(tmp_path_factory.mktemp("gate"), make_dense(), contexts, method="ds", options={}, head=module)


@pytest.mark.parametrize("count", [1, MAX_FUSED_ROWS, MAX_LOOP_ROWS, MAX_LOOP_ROWS + 1])
@pytest.mark.parametrize("lists", [{}, {"ban": [CLASSES - 1]}])
def test_every_way_gives_the_same(head, count, lists, monkeypatch):
    rows = contexts.contexts[:count]
    quick = head.topk(rows, 5, **lists)
    for missing in ("loops", "fused", "batch"):
        monkeypatch.setattr(head.plan, missing, None)
        top = head.topk(rows, 5, **lists)
        np.testing.assert_array_equal(top.ids, quick.ids)
        np.testing.assert_allclose(top.logprobs, quick.logprobs, atol=1e-4)
        np.testing.assert_array_equal(top.scored, quick.scored)
    assert head.topk(rows[:0], 5, **lists).ids.shape == (0, 5)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 31, 90])
@pytest.mark.parametrize("method", ["ds", "ds-svd"])
def test_equal_rows_have_equal_scores_and_come_by_lower_id(size, method, tmp_path, monkeypatch):
    """A single row's product sums the classes that are left over after blocks of four in another order."""
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(1, DIM, generator=random).repeat(2 * size, 1)
    ids = [torch.arange(size), torch.arange(size) + 100]
    module = DSSoftmax(weight, torch.ones(2 * size), torch.randn(2, DIM, generator=random), ids, CLASSES, DSOptions())
    head = make_head(tmp_path, make_dense(), contexts, method=method, options={}, head=module)
    monkeypatch.setattr(head.plan, "loops", None)
    for missing in ("fused", "batch"):
        for row in contexts.contexts[:20]:
            top = head.topk(row[None], size)
            assert (np.diff(top.ids) == 1).all()
            assert (top.logprobs == top.logprobs[0, 0]).all()
        monkeypatch.setattr(head.plan, missing, None)


@pytest.mark.parametrize("changes", [{"previews": False}, {"full_view": 9}])
def test_settings_of_previews_that_there_are_not(head, changes):
    with pytest.raises(BadInput, match="would change nothing: this head has no previews"):
        head.with_settings(**changes)
