"""Bounds by compiled loops: against the graph that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
from shortlist.bundle.writer import seal
from shortlist.kernels.bounds import CompiledBounds
from shortlist.kernels.native.library import open_target
from shortlist.runtime.session import Graph

from tests.support.kernels import list_targets
from tests.support.layers import make_contexts, make_dense
from tests.support.proofs import graph_of, proved, rows

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]


@pytest.mark.parametrize("layer", [{}, {"bias": True, "soft_cap": 20.0, "padded": np.array([0, 7, 601])}])
def test_compiled_bounds_equal_the_graph(tmp_path, layer):
    if layer.get("bias"):
        layer = layer | {"bias": np.random.default_rng(1).standard_normal(602).astype(np.float32)}
    head = proved(tmp_path, make_dense(602, 27, **layer), make_contexts(dim=27))
    assert isinstance(head.certified.bounds, CompiledBounds)
    contexts = make_contexts(50, 27, seed=8).contexts
    estimates, spreads = head.certified.bounds(context=contexts)
    wanted, wanted_spreads = graph_of(head)(context=contexts)
    np.testing.assert_allclose(spreads, wanted_spreads, rtol=1e-3)
    plan, known = head.certified, np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(estimates), known)
    off = np.abs(np.where(known, estimates, 0) - np.where(known, wanted, 0))
    assert (off <= plan.scale * (spreads + wanted_spreads) + 2 * plan.floor).all()
    assert (off.max(axis=1) < 1e-4).mean() > 0.9  # a digit that rounds the other way moves a whole row
    for i, row in enumerate(contexts):
        np.testing.assert_array_equal(head.certified.bounds(context=row[None])[0][0], estimates[i])
    unaligned = np.frombuffer(b"x" + contexts.tobytes(), np.float32, offset=1).reshape(contexts.shape)
    for held in (contexts[::-1][::-1], np.asfortranarray(contexts), unaligned):
        np.testing.assert_array_equal(head.certified.bounds(context=held)[0], estimates)
    for target in list_targets():
        head.certified.bounds.kernels = open_target(target)
        np.testing.assert_array_equal(head.certified.bounds(context=contexts)[0], estimates)
        np.testing.assert_array_equal(head.certified.bounds(context=contexts)[1], spreads)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_more_threads_prove_the_same(proved_head, batch):
    heads = [shortlist.load(proved_head.folder, threads=threads) for threads in (1, 2)]
    heads[1].certified.bounds.threaded_rows.row_seconds = 10.0  # so that every block is worth a thread
    one, two = (each.topk(rows[:batch], 5, exact=True) for each in heads)
    assert one.normalizer == two.normalizer == "bounded"
    for name in ("ids", "logprobs", "scored"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_without_the_library_the_graph_proves_the_same(proved_head, no_library):
    other = shortlist.load(proved_head.folder)
    assert isinstance(other.certified.bounds, Graph)
    one, two = (each.topk(rows, 5, exact=True) for each in (proved_head, other))
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.logprobs, two.logprobs, atol=2 * proved_head.manifest.certificate.logprob_bound)


@pytest.mark.parametrize("role", ["bounds_change", "bounds_columns"])
def test_without_arrays_for_loops_the_graph_proves(proved_head, role):
    arrays = {name: array for name, array in proved_head.manifest.arrays.items() if name != role}
    assert len(arrays) < len(proved_head.manifest.arrays)
    (proved_head.folder / "manifest.json").unlink()
    seal(proved_head.folder, proved_head.manifest.model_copy(update={"arrays": arrays}))
    assert isinstance(shortlist.load(proved_head.folder).certified.bounds, Graph)
