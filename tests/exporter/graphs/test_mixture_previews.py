"""The arrays of a mixture's previews: their bounds hold for any component, in float64."""

import numpy as np
import pytest
from shortlist_exporter.graphs.mixture import previews
from shortlist_exporter.graphs.mixture.previews import make_previews, write_previews


def make_rows(random, classes, dim):
    """Rows of every size, one of zeros, one with a single number that is not 0."""
    rows = random.standard_normal((classes, dim)) * 10.0 ** random.integers(-20, 10, (classes, 1))
    rows[3], rows[4] = 0, np.eye(dim)[0]
    return rows.astype(np.float32)


@pytest.mark.parametrize(("classes", "dim", "components"), [(200, 16, 4), (170, 33, 3), (300, 1, 64)])
def test_bounds_hold_for_any_component_and_its_rounding(classes, dim, components):
    random = np.random.default_rng(dim)
    rows = make_rows(random, classes, dim)
    levels, scales, errors, sizes = (values.astype(np.float64) for values in make_previews(rows, components).values())
    exact = random.uniform(-1, 1, (50, dim))
    exact = np.concatenate([exact, np.sign(exact), (rows / np.abs(rows).max(axis=1, keepdims=True).clip(1e-30))[:50]])
    rounded = np.round(exact * 63) / 63
    off = np.abs(exact @ rows.T.astype(np.float64) - (rounded @ levels.T) * scales)
    norm, left = (np.linalg.norm(values, axis=1)[:, None] for values in (exact, exact - rounded))
    assert (off <= norm * errors + left * sizes).all()
    assert np.abs(levels).max() == 127
    assert (levels[3] == 0).all()


def test_chunks_give_the_same(monkeypatch):
    rows = make_rows(np.random.default_rng(0), 200, 9)
    whole = make_previews(rows, 4)
    monkeypatch.setattr(previews, "CHUNK_CLASSES", 64)
    for role, values in make_previews(rows, 4).items():
        np.testing.assert_array_equal(values, whole[role])


def test_few_classes_get_no_previews(tmp_path):
    rows = make_rows(np.random.default_rng(0), 200, 9)
    assert write_previews(tmp_path, rows[:159], 4).arrays == {}
    files = write_previews(tmp_path, rows, 4).arrays
    assert {array.file for array in files.values()} == {path.name for path in tmp_path.iterdir()}
    assert files["mixture_preview_rows"].shape == (200, 9)
