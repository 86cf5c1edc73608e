"""Previews lie in blocks, those of the first columns apart from the others."""

import numpy as np
import pytest
from shortlist.kernels.grouped import previews
from shortlist.kernels.grouped.previews import lay_out_previews
from shortlist.kernels.primitives.layout import LANE_BYTES, LANES, LINE_BYTES, TWO_BIT_COLUMNS, place_in_blocks

STARTS = np.array([0, 16, 19, 35, 40, 56, 57])
CLASSES, BLOCKS = 57, 6


def make_arrays(wide, fine, compared):
    """An index's arrays of so many columns in int8, in 2 bits, and by which groups are compared."""
    generator = np.random.default_rng(0)
    arrays = {
        "block_starts": STARTS,
        "group_codes": np.zeros((3, compared), np.int8),
        "preview": generator.integers(-127, 128, (CLASSES, wide), np.int8),
        "scale": generator.random(CLASSES, np.float32),
        "preview_raise": generator.random(CLASSES, np.float32),
    }
    if fine:
        arrays["fine"] = 2 * generator.integers(0, 4, (CLASSES, fine), np.int8) - 3
        arrays["fine_scale"] = generator.random(CLASSES, np.float32)
    return arrays


def read_two_bits(lines):
    """The weights [B LANES, columns] of lines [B, ., LANES, LANE_BYTES]."""
    parts = np.stack([(lines >> shift & 3).astype(int) * 2 - 3 for shift in (0, 2, 4, 6)], axis=2)
    return parts.transpose(0, 3, 1, 2, 4).reshape(len(lines) * LANES, -1)


@pytest.mark.parametrize(
    ("fine", "compared", "coarse"), [(100, 4, 64), (100, 90, 96), (40, 90, 40), (16, 4, 16), (0, 4, 0)]
)
def test_first_and_other_columns_are_those_of_the_classes(fine, compared, coarse):
    arrays, places = make_arrays(4, fine, compared), place_in_blocks(STARTS)
    tables = lay_out_previews("", arrays)
    header = tables["previews"][:, : 3 * LINE_BYTES].copy().view(np.float32).reshape(BLOCKS, 3, LANES)
    for row, name in enumerate(("scale", "fine_scale" if fine else "scale", "preview_raise")):
        np.testing.assert_array_equal(header[:, row].reshape(-1)[places], arrays[name])
    lines = tables["previews"][:, 3 * LINE_BYTES :].reshape(BLOCKS, -1, LANES, LANE_BYTES)
    first = lines[:, 0].reshape(-1, LANE_BYTES)[places]
    np.testing.assert_array_equal(first.astype(int) - 128, arrays["preview"])
    rest = tables["fine_previews"].reshape(BLOCKS, -1, LANES, LANE_BYTES)
    assert lines.shape[1] - 1 == -(-coarse // TWO_BIT_COLUMNS)
    assert rest.shape[1] == -(-(fine - coarse) // TWO_BIT_COLUMNS)
    if fine:
        both = np.concatenate([read_two_bits(lines[:, 1:])[places, :coarse], read_two_bits(rest)[places]], axis=1)
        np.testing.assert_array_equal(both[:, :fine], arrays["fine"])


def test_blocks_laid_out_few_at_a_time_are_the_same(monkeypatch):
    arrays = make_arrays(7, 100, 40)
    whole = lay_out_previews("", arrays)
    monkeypatch.setattr(previews, "CHUNK_BLOCKS", 4)
    for name, table in lay_out_previews("", arrays).items():
        np.testing.assert_array_equal(table, whole[name])
