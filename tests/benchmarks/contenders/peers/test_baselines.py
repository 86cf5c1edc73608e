"""Baselines from papers: what they find, and that they are what the papers say."""

import heapq
from itertools import product

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Dense
from threadpoolctl import threadpool_limits

from benchmarks.common.truth import compute_exact_ids
from benchmarks.contenders.basis import basis_of
from benchmarks.contenders.peers import flash_head, greedy_mips, lsh_mips, ort_int8, pca_mips

MODULES = (greedy_mips, pca_mips, lsh_mips, flash_head, ort_int8)
KINDS = [kind for module in MODULES for kind in module.CONTENDERS]
EVERYTHING = {"probes": 10**6, "opened": 10**6, "budget": 10**6, "rescored": 10**6}
EXACT = {"PCA-MIPS", "LSH-MIPS", "FlashHead", "int8 rows, onnxruntime"}  # when everything is opened


@pytest.fixture(autouse=True)
def one_thread():
    """Products this small only wait for other threads."""
    with threadpool_limits(1):
        yield


def padding(classes):
    return np.unique([min(5, classes - 2), classes - 1])


def layer(classes=1000, dim=16, bias=True):
    """Rows and contexts whose axes fade, two rows of padding that would win, contexts to fit."""
    random = np.random.default_rng(0)
    fade = np.geomspace(1, 0.1, dim)
    weight = random.standard_normal((classes, dim)) * fade
    weight[padding(classes)] = 1e3
    offsets = (0.3 * random.standard_normal(classes)).astype(np.float32) if bias else None
    contexts = (random.standard_normal((1200, dim)) * fade).astype(np.float32)
    return Dense(weight.astype(np.float32), offsets, padded=padding(classes)), contexts


def first_builds(kind, dense):
    """One build for every basis."""
    return list({build["basis"]: build for build in reversed(kind.grid(dense))}.values())


CASES = [
    pytest.param(kind, build["basis"], id=f"{kind.name}, {build['basis']}")
    for kind in KINDS
    for build in first_builds(kind, layer()[0])
]


def fitted(kind, basis, dense, contexts):
    build = next(build for build in first_builds(kind, dense) if build["basis"] == basis)
    contender = kind(build, threads=1)
    contender.fit(dense, contexts)
    return contender


def share(found, true):
    return (found[:, :, None] == true[:, None, :]).any(axis=1).mean()


def check_possible(found, dense):
    assert found.dtype == np.int64
    assert ((found >= -1) & (found < dense.classes)).all()
    assert not np.isin(found, dense.padded).any()
    for row in found:
        known = row[row >= 0]
        assert len(set(known)) == len(known)
        assert (row[len(known) :] == -1).all()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_the_most_thorough_setting_finds_the_exact_top_five(kind, basis, bias):
    dense, contexts = layer(bias=bias)
    contender = fitted(kind, basis, dense, contexts[:1000])
    rows = contexts[1000:]
    true = compute_exact_ids(dense, rows)[:, :5]
    contender.use(contender.settings()[-1])
    found = contender.topk(rows, 5)
    check_possible(found, dense)
    assert share(found, true) >= 0.95
    single = np.concatenate([contender.topk(row[None], 5) for row in rows])
    assert (single == found).mean() > 0.99
    assert dense.weight.nbytes < contender.size() < 30 * dense.weight.nbytes


@pytest.mark.parametrize(("kind", "basis"), [case for case in CASES if case.values[0].name in EXACT])
def test_with_everything_opened_the_answer_is_exact(kind, basis):
    dense, contexts = layer()
    contender = fitted(kind, basis, dense, contexts[:1000])
    contender.use(EVERYTHING)
    found = contender.topk(contexts[1000:], 5)
    assert (found == compute_exact_ids(dense, contexts[1000:])[:, :5]).mean() > 0.995


@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_cheaper_settings_find_less(kind, basis):
    dense, contexts = layer()
    contender = fitted(kind, basis, dense, contexts[:1000])
    true = compute_exact_ids(dense, contexts[1000:])
    shares = []
    for setting in contender.settings():
        contender.use(setting)
        shares.append(share(contender.topk(contexts[1000:], 10), true))
    assert (np.diff(shares) >= -0.002).all()


@pytest.mark.parametrize("classes", [52, 5])
@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_every_setting_answers_only_what_is_possible_on_a_tiny_layer(kind, basis, classes):
    dense, contexts = layer(classes, dim=7)
    for build in kind.grid(dense):
        contender = kind(build, threads=1)
        contender.fit(dense, contexts)
        for setting, k in product(contender.settings(), (1, 60)):
            contender.use(setting)
            found = contender.topk(contexts[:3], k)
            assert found.shape == (3, k)
            check_possible(found, dense)


def greedy_by_heap(rows, query, budget):
    """Rows in the order in which the paper's heap of conditional iterators meets them."""
    entries = query * rows
    order = np.argsort(-entries, axis=0)
    heap = [(-entries[order[0, axis], axis], axis, 0) for axis in range(query.size)]
    heapq.heapify(heap)
    met = []
    while len(met) < budget:
        _, axis, place = heapq.heappop(heap)
        row = order[place, axis]
        if row not in met:
            met.append(row)
        if place + 1 < len(rows):
            heapq.heappush(heap, (-entries[order[place + 1, axis], axis], axis, place + 1))
    return met


@pytest.mark.parametrize("budget", [1, 2, 17, 60, 150, 300])
@pytest.mark.parametrize("peaked", [False, True])
def test_greedy_meets_the_rows_that_the_heap_meets(budget, peaked):
    random = np.random.default_rng(budget)
    rows = random.standard_normal((300, 9)).astype(np.float32)
    lists = greedy_mips.sorted_lists(rows, 300)
    for _ in range(5):
        query = random.standard_normal(9).astype(np.float32)
        query[3] *= 50 if peaked else 1  # one list gives nearly all entries
        found = greedy_mips.visited(lists, query, budget)
        assert list(found) == greedy_by_heap(rows, query, budget)
        largest = np.argsort(-(query * rows).max(axis=1), kind="stable")[:budget]
        assert set(found) == set(largest)


def test_lists_are_read_no_further_than_their_limit():
    rows = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    query = np.array([1, -2, 0.5, 3], np.float32)
    whole, cut = greedy_mips.sorted_lists(rows, 100), greedy_mips.sorted_lists(rows, 20)
    assert list(greedy_mips.visited(cut, query, 20)) == list(greedy_mips.visited(whole, query, 20))
    assert len(greedy_mips.visited(cut, query, 50)) == 20


def leaf_by_walk(tree, point):
    """The leaf that a point falls into, one median at a time."""
    node = 0
    for along, threshold in zip(point, tree.thresholds, strict=True):
        node = 2 * node + int(along > threshold[node])
    return node


def test_the_pca_tree_halves_its_rows_and_bounds_distances():
    random = np.random.default_rng(0)
    rows = (random.standard_normal((333, 8)) * np.geomspace(1, 0.2, 8)).astype(np.float32)
    lifted = pca_mips.lifted(rows)
    axes = pca_mips.principal_axes(lifted, 4)
    assert np.allclose(axes.T @ axes, np.eye(4), atol=1e-5)
    assert (np.diff((lifted @ axes).var(axis=0)) < 0).all()
    tree = pca_mips.grown(lifted @ axes)
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


def test_after_the_lift_the_nearest_are_those_of_the_largest_inner_product():
    random = np.random.default_rng(0)
    rows, query = random.standard_normal((200, 6)).astype(np.float32), random.standard_normal(6).astype(np.float32)
    for lift in (pca_mips.lifted, lsh_mips.simple_lift):
        lifted = lift(rows)
        assert np.allclose(np.linalg.norm(lifted, axis=1), np.linalg.norm(lifted[0]), rtol=1e-5)
        distances = np.square(lifted - np.append(query, 0)).sum(axis=1)
        assert list(np.argsort(distances)[:20]) == list(np.argsort(-rows @ query)[:20])


def test_lsh_looks_where_a_code_agrees():
    dense, contexts = layer()
    contender = lsh_mips.LshMips({"basis": "raw", "tables": 3, "bits": 5}, 1)
    contender.fit(dense, contexts[:1000])
    directions = np.random.default_rng(lsh_mips.SEED).standard_normal((18, 15), np.float32)
    points = lsh_mips.simple_lift(basis_of("raw", dense, contexts).rows)
    for context in contexts[1000:1020]:
        query = np.concatenate([context, [1, 0]]).astype(np.float32)
        agree = ((points @ directions >= 0) == (query @ directions >= 0)).reshape(-1, 3, 5)
        contender.use({"probes": 1})
        projections = contender.by_table(contender.basis.queries(context[None]) @ contender.directions)[0]
        assert list(contender.candidates(projections)) == list(agree.all(axis=2).any(axis=1).nonzero()[0])


def test_lsh_probes_the_least_different_codes_first():
    projections = np.array([[0.5, -0.1, 2.0], [-1.0, 0.3, -0.2]], np.float32)
    expected = [
        [
            sum(abs(along) for along, bit in zip(row, bits, strict=True) if bit != (along >= 0))
            for bits in product((0, 1), repeat=3)
        ]
        for row in projections
    ]
    assert np.allclose(lsh_mips.differences(projections), expected)
    assert list(lsh_mips.codes_of(projections)) == list(np.argmin(expected, axis=1))


@pytest.mark.parametrize(("rows", "count"), [(320, 20), (333, 21), (7, 7), (50, 4)])
def test_balanced_clusters_have_equal_sizes_and_every_row_once(rows, count):
    members = flash_head.balanced_clusters(
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
        means = flash_head.normalised(rows)[members].mean(axis=1)
        return np.linalg.norm(means, axis=1).mean()

    members = flash_head.balanced_clusters(rows, 40)
    assert closeness(members) > 2 * closeness(random.permutation(640).reshape(40, 16))
    longer = rows * 2.0 ** random.integers(0, 4, (640, 1)).astype(np.float32)
    assert (flash_head.balanced_clusters(longer, 40) == members).all()


def test_a_full_cluster_keeps_those_most_similar_to_it():
    angles = np.radians([0, 10, 20, 30, 40, 170])
    unit = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    centroids = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    owners = flash_head.balanced_owners(unit, centroids, np.array([2, 2, 2]))
    assert list(owners) == [0, 0, 2, 1, 1, 2]


def test_flash_head_scores_the_rows_of_the_best_centroids(monkeypatch):
    monkeypatch.setattr(flash_head, "CACHED", 3000)  # blocks of two clusters, the last one alone
    dense, contexts = layer()
    contender = fitted(flash_head.FlashHead, "raw", dense, contexts)
    contender.use({"probes": 5})
    for context in contexts[:20]:
        unit = flash_head.normalised(np.column_stack([dense.weight, dense.bias]))
        sums = np.stack([unit[ids[ids >= 0]].sum(axis=0) for ids in contender.ids])
        best = np.argsort(-flash_head.normalised(sums) @ np.append(context, 1))[:5]
        ids = contender.ids[best].ravel()
        ids = ids[ids >= 0]
        expected = ids[np.argsort(-(dense.weight[ids] @ context + dense.bias[ids]))][:6]
        assert list(contender.topk(context[None], 6)[0]) == list(expected)


@pytest.mark.parametrize("bias", [True, False])
def test_int8_scores_are_those_of_rounded_rows_and_contexts(bias):
    dense, contexts = layer(bias=bias)
    contender = fitted(ort_int8.OnnxInt8, "raw", dense, contexts)
    kept = contender.basis.ids
    weight_scale = np.abs(dense.weight[kept]).max(axis=1, keepdims=True) / 127
    scale = np.abs(contexts[:9]).max(axis=1, keepdims=True) / 127
    sums = np.round(contexts[:9] / scale) @ np.round(dense.weight[kept] / weight_scale).T
    expected = sums * scale * weight_scale.T + (dense.bias[kept] if bias else 0)
    assert np.allclose(contender.graph(query=contexts[:9])[0], expected, atol=1e-4)


def test_names_are_unique():
    names = [kind.name for kind in KINDS]
    assert names == ["GreedyMIPS", "PCA-MIPS", "LSH-MIPS", "FlashHead", "int8 rows, onnxruntime"]
