"""FlashHead's clusters are balanced, and it scores the rows of the best."""

import numpy as np
import pytest

from benchmarks.contenders.peers import flash_head
from tests.support.contenders import fit_contender, make_fading_layer, pick_builds


@pytest.mark.parametrize(("rows", "count"), [(320, 20), (333, 21), (7, 7), (50, 4)])
def test_balanced_clusters_have_equal_sizes_and_every_row_once(rows, count):
    members = flash_head.make_even_clusters(
        np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32), count
    )
    sizes = (members >= 0).sum(axis=1)
    assert members.shape == (count, -(-rows // count))
    assert sizes.max() - sizes.min() <= 1
    assert sorted(members[members >= 0]) == list(range(rows))


def test_balanced_clusters_are_closer_than_chance_and_ignore_norms():
    random = np.random.default_rng(0)
    rows = random.standard_normal((640, 6)).astype(np.float32)

    def closeness(members):
        means = flash_head.normalise_rows(rows)[members].mean(axis=1)
        return np.linalg.norm(means, axis=1).mean()

    members = flash_head.make_even_clusters(rows, 40)
    assert closeness(members) > 2 * closeness(random.permutation(640).reshape(40, 16))
    longer = rows * 2.0 ** random.integers(0, 4, (640, 1)).astype(np.float32)
    assert (flash_head.make_even_clusters(longer, 40) == members).all()


def test_a_full_cluster_keeps_those_most_similar_to_it():
    angles = np.radians([0, 10, 20, 30, 40, 170])
    unit = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    centroids = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    owners = flash_head.assign_evenly(unit, centroids, np.array([2, 2, 2]))
    assert list(owners) == [0, 0, 2, 1, 1, 2]


def test_flash_head_scores_the_rows_of_the_best_centroids(monkeypatch):
    monkeypatch.setattr(flash_head, "GATHERED_BYTES", 3000)  # blocks of two clusters, the last one alone
    dense, contexts = make_fading_layer()
    contender = fit_contender(flash_head.FlashHead, pick_builds(flash_head.FlashHead, dense)["raw"], dense, contexts)
    contender.use({"probes": 5})
    for context in contexts[:20]:
        unit = flash_head.normalise_rows(np.column_stack([dense.weight, dense.bias]))
        sums = np.stack([unit[ids[ids >= 0]].sum(axis=0) for ids in contender.ids])
        best = np.argsort(-flash_head.normalise_rows(sums) @ np.append(context, 1))[:5]
        ids = contender.ids[best].ravel()
        ids = ids[ids >= 0]
        expected = ids[np.argsort(-(dense.weight[ids] @ context + dense.bias[ids]))][:6]
        assert list(contender.topk(context[None], 6)[0]) == list(expected)
