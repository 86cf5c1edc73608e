"""PCA-MIPS halves its rows and bounds distances."""

import numpy as np

from benchmarks.contenders.basis import lift_rows
from benchmarks.contenders.peers import pca_mips


def leaf_by_walk(tree, point):
    """The leaf that a point falls into, one median at a time."""
    node = 0
    for along, threshold in zip(point, tree.thresholds, strict=True):
        node = 2 * node + int(along > threshold[node])
    return node


def test_the_pca_tree_halves_its_rows_and_bounds_distances():
    random = np.random.default_rng(0)
    rows = (random.standard_normal((333, 8)) * np.geomspace(1, 0.2, 8)).astype(np.float32)
    lifted = lift_rows(rows)
    axes = pca_mips.principal_axes(lifted, 4)
    assert np.allclose(axes.T @ axes, np.eye(4), atol=1e-5)
    assert (np.diff((lifted @ axes).var(axis=0)) < 0).all()
    tree = pca_mips.grow_tree(lifted @ axes)
    sizes = (tree.leaves >= 0).sum(axis=1)
    assert tree.leaves.shape[0] == 16
    assert sizes.max() - sizes.min() <= 1
    assert sorted(tree.leaves[tree.leaves >= 0]) == list(range(333))
    for query in random.standard_normal((20, 9)).astype(np.float32):
        bounds = tree.bounds(query @ axes)
        assert bounds.argmin() == leaf_by_walk(tree, query @ axes)
        assert list(tree.nearest(query @ axes, 1)) == list(tree.leaves[bounds.argmin()])
        for bound, leaf in zip(bounds, tree.leaves, strict=True):
            assert bound <= np.square(lifted[leaf[leaf >= 0]] - query).sum(axis=1).min() + 1e-5
