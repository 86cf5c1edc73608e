"""Groups of classes and the blocks that they are in."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist_models.grouped import BLOCK, best_holding, in_blocks, similar_classes


def rows_of(count, seed=0):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 200), st.integers(1, 12), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_class_is_in_one_block_of_one_group(classes, count, biased):
    rows = rows_of(classes)
    groups = similar_classes(rows, rows[:, 0] if biased else None, min(count, classes), 0)
    assert groups.order.sort().values.tolist() == list(range(classes))
    assert groups.starts[-1] == classes
    assert (groups.sizes > 0).all()
    starts = groups.block_starts()
    assert set(groups.starts.tolist()) <= set(starts.tolist())
    sizes = starts.diff()
    assert ((sizes > 0) & (sizes <= BLOCK)).all()
    assert len(sizes) == (-(-groups.sizes // BLOCK)).sum()


def test_blocks_find_what_is_alike():
    own = torch.arange(4).repeat_interleave(BLOCK)[
        torch.randperm(4 * BLOCK, generator=torch.Generator().manual_seed(1))
    ]
    rows = torch.nn.functional.one_hot(own, 6) * 20 + rows_of(4 * BLOCK)
    found = own[in_blocks(rows, torch.arange(4 * BLOCK))].reshape(4, BLOCK)
    assert (found == found[:, :1]).all()
    assert found[:, 0].sort().values.tolist() == [0, 1, 2, 3]


def test_equal_rows_are_in_blocks_too():
    assert in_blocks(torch.zeros(50, 6), torch.arange(50)).sort().values.tolist() == list(range(50))


@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_the_best_that_hold_enough(count, wanted, seed):
    generator = torch.Generator().manual_seed(seed)
    scores, sizes = torch.randn(3, count, generator=generator), torch.randint(1, 20, (count,), generator=generator)
    for row, kept in zip(scores, best_holding(scores, sizes, wanted), strict=True):
        assert sizes[kept].sum() >= min(wanted, sizes.sum())
        worst = row.masked_fill(~kept, torch.inf).argmin()
        assert sizes[kept].sum() - sizes[worst] < wanted
        assert row[kept].min() >= row.masked_fill(kept, -torch.inf).max()
