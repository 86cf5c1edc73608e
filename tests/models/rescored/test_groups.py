"""Groups of similar classes and the blocks that they are in."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist_models.rescored import groups as groups_module
from shortlist_models.rescored.groups import (
    BLOCK_CLASSES,
    MAX_FLAT_GROUPS,
    Groups,
    cluster_at_once,
    cluster_rows,
    group_similar_classes,
    order_in_blocks,
)


def rows_of(count, seed=0):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def one_group(classes):
    return Groups(torch.arange(classes), torch.tensor([0, classes]))


@given(st.integers(1, 200), st.integers(1, 12), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_class_is_in_one_block_of_one_group(classes, count, biased):
    rows = rows_of(classes)
    groups = group_similar_classes(rows, rows[:, 0] if biased else None, min(count, classes), 0)
    assert groups.order.sort().values.tolist() == list(range(classes))
    assert groups.starts[-1] == classes
    assert (groups.sizes > 0).all()
    starts = groups.block_starts()
    assert set(groups.starts.tolist()) <= set(starts.tolist())
    sizes = starts.diff()
    assert ((sizes > 0) & (sizes <= BLOCK_CLASSES)).all()
    assert len(sizes) == (-(-groups.sizes // BLOCK_CLASSES)).sum()


@pytest.mark.parametrize("alone", [[], [3], [150, 7, 0]])
def test_classes_alone_are_a_group_each_in_front_of_the_others(alone):
    rows, count = rows_of(200), 5
    groups = group_similar_classes(rows, rows[:, 0], count, 0, torch.tensor(alone, dtype=torch.int64))
    assert groups.order.sort().values.tolist() == list(range(200))
    assert groups.order[: len(alone)].tolist() == alone
    assert groups.sizes[: len(alone)].tolist() == [1] * len(alone)
    assert len(groups.sizes) == len(alone) + count


def test_blocks_find_what_is_alike():
    group = torch.arange(4).repeat_interleave(BLOCK_CLASSES)[
        torch.randperm(4 * BLOCK_CLASSES, generator=torch.Generator().manual_seed(1))
    ]
    rows = torch.nn.functional.one_hot(group, 6) * 20 + rows_of(4 * BLOCK_CLASSES)
    result = group[order_in_blocks(rows, one_group(len(rows)))].reshape(4, BLOCK_CLASSES)
    assert (result == result[:, :1]).all()
    assert result[:, 0].sort().values.tolist() == [0, 1, 2, 3]


def test_equal_rows_are_in_blocks_too():
    assert order_in_blocks(torch.zeros(50, 6), one_group(50)).sort().values.tolist() == list(range(50))


def measure_distortion(rows, groups):
    """The mean squared distance of rows to the mean of their group."""
    parts = torch.split(rows[groups.order], groups.sizes.tolist())
    return sum(((part - part.mean(dim=0)) ** 2).sum() for part in parts) / len(rows)


def test_two_levels_group_nearly_as_well_as_one():
    rows, count = rows_of(6000), MAX_FLAT_GROUPS + 1
    two, one = cluster_rows(rows, count, 0), cluster_at_once(rows, count, 0)
    assert two.order.sort().values.tolist() == list(range(len(rows)))
    assert len(two.sizes) == pytest.approx(count, rel=0.05)
    assert measure_distortion(rows, two) < 1.2 * measure_distortion(rows, one)
    assert measure_distortion(rows, two) < 0.6 * measure_distortion(rows, cluster_at_once(rows, count // 10, 0))


def test_centres_of_a_sample_group_nearly_as_well_as_those_of_all_rows(monkeypatch):
    rows = rows_of(20_000)
    whole = measure_distortion(rows, cluster_at_once(rows, 20, 0))
    monkeypatch.setattr(groups_module, "MAX_TRAINING_ROWS", 1)
    sample = cluster_at_once(rows, 20, 0)  # of 256 rows for each centre
    assert sample.order.sort().values.tolist() == list(range(len(rows)))
    assert measure_distortion(rows, sample) < 1.02 * whole
    again = cluster_at_once(rows, 20, 0)
    assert torch.equal(sample.order, again.order)


def test_groups_of_many_sizes_are_ordered_as_each_alone():
    rows, sizes = rows_of(400), torch.tensor([1, 16, 17, 70, 96, 200])
    groups = Groups(torch.arange(400), torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]))
    together = order_in_blocks(rows, groups)
    for start, size in zip(groups.starts.tolist(), sizes.tolist(), strict=False):
        alone = order_in_blocks(rows[start : start + size], one_group(size))
        assert torch.equal(together[start : start + size], start + alone)


def test_rows_that_are_all_equal_are_grouped_in_two_levels_too():
    groups = cluster_rows(torch.zeros(3000, 6), MAX_FLAT_GROUPS + 1, 0)
    assert groups.order.sort().values.tolist() == list(range(3000))
    assert (groups.sizes > 0).all()


def make_stranger():
    """Rows around 10 along each of two axes and around 1/2 along a third, and, last, one of 1 along the first."""
    axes = torch.tensor([0, 1, 2]).repeat_interleave(32)
    lengths = torch.tensor([10.0, 10.0, 0.5])[axes, None]
    rows = torch.nn.functional.one_hot(axes, 6) * lengths + 0.1 * rows_of(len(axes))
    return torch.cat([rows, torch.eye(6)[:1]])


def name_groups(groups):
    """The number of each row's group, [m]."""
    numbers = torch.repeat_interleave(torch.arange(len(groups.sizes)), groups.sizes)
    return numbers[groups.order.argsort()]


def test_a_short_row_is_where_others_have_its_direction_not_its_length():
    rows = make_stranger()
    by_distance, by_angle = name_groups(cluster_rows(rows, 3, 0)), name_groups(group_similar_classes(rows, None, 3, 0))
    assert by_distance[-1] == by_distance[64]  # of the short ones
    assert (by_angle[:32] == by_angle[-1]).all()
    assert by_angle[-1] != by_angle[64]


@pytest.mark.parametrize("left_out", ["rounds", "biases"])
def test_groups_are_by_distance_where_rounds_by_angle_take_too_long_and_with_biases(left_out, monkeypatch):
    rows = make_stranger()
    bias = torch.zeros(len(rows)) if left_out == "biases" else None
    if left_out == "rounds":
        monkeypatch.setattr(groups_module, "MAX_COMPARISONS", 3 * len(rows) - 1)
    groups = group_similar_classes(rows, bias, 3, 0)
    assert torch.equal(name_groups(groups), name_groups(cluster_rows(rows, 3, 0)))
