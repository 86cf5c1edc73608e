"""Proofs by compiled loops: against the graph that they stand for, and against themselves."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import shortlist
from safetensors.numpy import load_file, save_file
from shortlist.bundle.reader import CERTIFICATE_FILE
from shortlist.bundle.writer import seal
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.errors import BundleError
from shortlist.kernels.native.library import open_target
from shortlist.kernels.proofs import ROLES, TABLES, CompiledProofs
from shortlist.plans.graph_proofs import GraphProofs

from tests.support.kernels import list_targets
from tests.support.layers import list_layers, make_contexts, make_dense
from tests.support.proofs import graph_of, proved, rows

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]

LISTS = {
    "none": UNRESTRICTED,
    "ban": ClassFilter(None, np.arange(300)[None]),
    "ban a row": ClassFilter(None, np.random.default_rng(1).integers(-1, 2000, (50, 40))),
    "allow": ClassFilter(np.array([[7, 7, -1, 5, 1999, 1200]]), None),
    "allow many": ClassFilter(np.arange(0, 2000, 2)[None], np.arange(0, 2000, 3)[None]),
}


@pytest.fixture(params=list_layers(2003))
def layer_head(request, tmp_path):
    return proved(tmp_path, make_dense(2003, 27, **list_layers(2003)[request.param]), make_contexts(dim=27))


def test_bounds_by_int8_equal_the_graphs(layer_head):
    proofs = layer_head.certified.proofs
    assert isinstance(proofs, CompiledProofs)
    contexts = make_contexts(50, 27, seed=8).contexts
    estimates, bounds = proofs.bound(contexts)
    wanted, spreads = graph_of(layer_head)(context=contexts)
    np.testing.assert_allclose(bounds[:, 1:2], spreads, rtol=1e-3)
    known = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(estimates[:, 0]), known)
    np.testing.assert_array_equal(np.isfinite(estimates[:, 1]), known)
    off = np.abs(np.where(known, estimates[:, 1], 0) - np.where(known, wanted, 0))
    assert (off <= 2 * proofs.tables["scale"] * spreads + 2 * proofs.rounding.floor).all()
    assert (off.max(axis=1) < 1e-4).mean() > 0.9  # a digit that rounds the other way moves a whole row


def test_every_target_and_every_array_gives_the_same_bits(layer_head):
    proofs, contexts = layer_head.certified.proofs, make_contexts(50, 27, seed=8).contexts
    estimates, bounds = proofs.bound(contexts)
    unaligned = np.frombuffer(b"x" + contexts.tobytes(), np.float32, offset=1).reshape(contexts.shape)
    for held in (contexts[::-1][::-1], np.asfortranarray(contexts), unaligned):
        np.testing.assert_array_equal(proofs.bound(held)[0], estimates)
    for i, row in enumerate(contexts):
        np.testing.assert_array_equal(proofs.bound(row[None])[0][0], estimates[i])
    for target in list_targets():
        proofs.kernels = open_target(target)
        np.testing.assert_array_equal(proofs.bound(contexts)[0], estimates)
        np.testing.assert_array_equal(proofs.bound(contexts)[1], bounds)


@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.parametrize("k", [1, 5, 40])
def test_every_target_proves_the_same_and_so_do_threads_and_single_rows(layer_head, lists, k):
    proofs, contexts = layer_head.certified.proofs, make_contexts(50, 27, seed=8).contexts
    result, errors = proofs.prove(contexts, k, LISTS[lists])
    decided = np.isfinite(errors)
    assert decided.mean() > 0.1  # k = 40 leaves too many where 300 classes are banned
    for target in list_targets():
        proofs.kernels, proofs.threads = open_target(target), 3
        for first, last in ((0, 50), (3, 4), (7, 13)):
            some = np.s_[first:last]
            other, others = proofs.prove(contexts[some], k, LISTS[lists].slice_rows(first, last))
            np.testing.assert_array_equal(others, errors[some])
            for name in ("ids", "logits", "log_normalizer", "scored"):
                np.testing.assert_array_equal(
                    getattr(other, name)[decided[some]], getattr(result, name)[some][decided[some]]
                )


def test_the_normaliser_is_one_whatever_is_asked(layer_head):
    proofs, contexts = layer_head.certified.proofs, make_contexts(50, 27, seed=8).contexts
    values, errors = proofs.normalize(contexts)
    assert np.isfinite(errors).all()
    for k, lists in ((1, "none"), (40, "none"), (5, "ban"), (3, "allow many")):
        result, decided = proofs.prove(contexts, k, LISTS[lists])
        known = np.isfinite(decided)
        np.testing.assert_allclose(result.log_normalizer[known], values[known], atol=1e-5)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_more_threads_prove_the_same(proved_head, batch):
    heads = [shortlist.load(proved_head.folder, threads=threads) for threads in (1, 2, 3)]
    first, *others = (each.topk(rows[:batch], 5, exact=True) for each in heads)
    assert first.normalizer == "bounded"
    for other in others:
        for name in ("ids", "logprobs", "scored"):
            np.testing.assert_array_equal(getattr(first, name), getattr(other, name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own(tmp_path):
    """Both go on after the fork, the child with threads that it had to start."""
    proofs = proved(tmp_path, make_dense(9000, 24)).certified.proofs
    proofs.threads = 3
    wanted = proofs.prove(rows, 5, UNRESTRICTED)[0].ids
    child = os.fork()
    if not child:
        same = [np.array_equal(proofs.prove(rows, 5, UNRESTRICTED)[0].ids, wanted) for _ in range(20)]
        threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 3
        os._exit(0 if all(same) and threads >= 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(proofs.prove(rows, 5, UNRESTRICTED)[0].ids, wanted)


@pytest.mark.parametrize("role", ROLES)
def test_without_arrays_for_loops_the_graph_proves(proved_head, role):
    arrays = {name: array for name, array in proved_head.manifest.arrays.items() if name != role}
    assert len(arrays) < len(proved_head.manifest.arrays)
    (proved_head.folder / "manifest.json").unlink()
    seal(proved_head.folder, proved_head.manifest.model_copy(update={"arrays": arrays}))
    assert isinstance(shortlist.load(proved_head.folder).certified.proofs, GraphProofs)


@pytest.mark.parametrize("name", TABLES)
def test_without_a_table_for_loops_the_graph_proves(proved_head, name):
    """As bundles of before the loops read 4 bits."""
    file = proved_head.folder / CERTIFICATE_FILE
    save_file({key: array for key, array in load_file(file).items() if key != name}, file)
    (proved_head.folder / "manifest.json").unlink()
    seal(proved_head.folder, proved_head.manifest)
    other = shortlist.load(proved_head.folder)
    assert isinstance(other.certified.proofs, GraphProofs)
    one, two = (each.topk(rows, 5, exact=True) for each in (proved_head, other))
    np.testing.assert_array_equal(one.ids, two.ids)


def test_a_basis_that_needs_more_than_sixteen_bits_is_refused(proved_head):
    """Loops would read the upper halves of its numbers alone, and the bounds would be others'."""
    file = proved_head.folder / "graphs" / "certificate_change.bin"
    numbers = np.fromfile(file, np.float32)
    np.nextafter(numbers, np.float32(np.inf)).tofile(file)
    (proved_head.folder / "manifest.json").unlink()
    seal(proved_head.folder, proved_head.manifest)
    with pytest.raises(BundleError, match="needs more than 16 bits"):
        shortlist.load(proved_head.folder)
