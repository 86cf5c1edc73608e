"""Contexts that are sampled for a layer with few or none, and the layers of catalogues that they are for."""

import json
from dataclasses import replace

import numpy as np
import pytest
import shortlist
from shortlist.bundle.reader import Bundle
from shortlist.cli import main
from shortlist.errors import BadInput
from shortlist.evaluation.canary import check_canary
from shortlist_exporter.inputs.sampled import (
    SAMPLED_CONTEXTS,
    complete_contexts,
    measure_coverage,
    normalize_layer,
    sample_contexts,
)
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import make_dense

ITEMS, DIM, K = 6_000, 24, 10


@pytest.fixture(scope="module")
def catalogue():
    """A layer [ITEMS, DIM] in clusters: norms vary by 100 times, 200 items have no interaction, 300 are there twice."""
    random = np.random.default_rng(5)
    centres = random.standard_normal((60, DIM))
    items = centres[random.integers(60, size=ITEMS)] + 0.5 * random.standard_normal((ITEMS, DIM))
    items *= 10 ** random.uniform(-1, 1, (ITEMS, 1)) / np.linalg.norm(items, axis=1, keepdims=True)
    items[100:300] = 0
    items[-300:] = items[1_000:1_300]
    return items.astype(np.float32)


def test_sampled_contexts_are_near_all_rows_and_nearer_than_those_of_common_ones():
    random = np.random.default_rng(0)
    centres = random.standard_normal((200, DIM)).astype(np.float32)
    rare = np.repeat(np.arange(200), np.where(np.arange(200) < 20, 2_000, 8))  # nine tenths of all clusters are small
    items = centres[rare] + 0.1 * random.standard_normal((len(rare), DIM)).astype(np.float32)
    dense = Dense(items)
    small = replace(dense, weight=items[40_000:])
    evenly = sample_contexts(dense, 2_000, 0)
    plainly = items[random.integers(len(items), size=2_000)]
    assert measure_coverage(small, evenly, 0).worst > measure_coverage(small, plainly, 0).worst + 0.1
    assert np.linalg.norm(evenly, axis=1).mean() == pytest.approx(np.sqrt((items**2).sum(axis=1).mean()), rel=0.01)
    np.testing.assert_array_equal(evenly, sample_contexts(dense, 2_000, 0))


def test_enough_contexts_or_some_with_targets_stay_as_they_are():
    dense = make_dense()
    enough = Contexts(np.ones((2 * dense.dim, dense.dim), np.float32))
    few = Contexts(np.ones((3, dense.dim), np.float32), targets=np.zeros(3, np.int64))
    assert complete_contexts(dense, enough, 0) is enough
    assert complete_contexts(dense, few, 0) is few


def test_few_contexts_of_another_width_are_refused():
    dense = make_dense()
    with pytest.raises(BadInput, match=f"contexts have d = {dense.dim + 1} but the weight has d = {dense.dim}"):
        complete_contexts(dense, Contexts(np.ones((3, dense.dim + 1), np.float32)), 0)


def test_a_layer_of_zeros_has_no_directions():
    with pytest.raises(BadInput, match="every row of the weight is 0, so no contexts can be sampled: give --contexts"):
        complete_contexts(Dense(np.zeros((5, 4), np.float32)), None, 0)


def test_a_transposed_layer_is_seen_by_its_width():
    """As a kernel [d, V] of an ArcFace head, of which 85,000 columns would ask for 29 GB."""
    with pytest.raises(BadInput, match=r"weight of 2 rows and 20000 columns: give the transposed weight, \[V, d\]"):
        complete_contexts(Dense(np.ones((2, 20_000), np.float32)), None, 0)


def test_sampling_is_named_while_it_lasts():
    stages = []
    complete_contexts(make_dense(), None, 0, lambda *stage: stages.append(stage))
    assert stages == [("sampling contexts", 0, 1)]


def test_a_layer_with_a_bias_has_no_cosines():
    with pytest.raises(BadInput, match="--cosine is of layers without a bias"):
        normalize_layer(make_dense(bias=np.ones(300, np.float32)), None)


def export_catalogue(folder, items, *arguments):
    """Export by the command line, as users do; returns the folder of the bundle."""
    np.save(folder / "items.npy", items)
    out = folder / "repository" / "items" / "1"
    layer = ["--weights", str(folder / "items.npy"), "--out", str(out), "--method", "grouped", "--threads", "1"]
    assert main(["export", *layer, *arguments]) == 0
    return out


def measure_recall(head, items, users):
    """The mean share of scores of the true K best that answers reach; equal scores count as equal."""
    true = -np.sort(-(users @ items.T.astype(np.float64)), axis=1)[:, K - 1 : K]
    top = head.topk(users, K, scores=True)
    return (top.scores >= true - 1e-4 * np.abs(true)).mean()


@pytest.mark.slow
def test_a_catalogue_is_exported_without_contexts_and_says_so(catalogue, tmp_path, capfd):
    out = export_catalogue(tmp_path, catalogue, "--at", "10,20,100")
    head = shortlist.load(out)
    quality, provenance = head.manifest.quality, head.manifest.provenance
    assert provenance["notes"][0].startswith(f"no contexts were given, so {SAMPLED_CONTEXTS:,} were sampled")
    assert "no contexts were given" in (out / "report" / "index.html").read_text("utf-8")
    assert "no contexts were given" in capfd.readouterr().err
    assert min(quality.p_at[k] for k in (10, 20, 100)) > 0.98
    assert check_canary(head, Bundle(out)) > 0.98  # its exact answers are whole, though deeper ones were measured
    users = sample_contexts(Dense(catalogue), 500, seed=9)
    assert measure_recall(head, catalogue, users) > 0.98
    exact = head.topk(users[:100], K, exact=True, scores=True)
    wanted = -np.sort(-(users[:100] @ catalogue.T.astype(np.float64)), axis=1)[:, :K]
    np.testing.assert_allclose(exact.scores, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_few_contexts_are_complemented_and_each_kind_has_its_figures(catalogue, tmp_path):
    users = sample_contexts(Dense(catalogue), 21, seed=9) * 3
    np.save(tmp_path / "users.npy", users)
    out = export_catalogue(tmp_path, catalogue, "--contexts", str(tmp_path / "users.npy"), "--no-report")
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    kinds = manifest["quality"]["kinds"]
    assert (kinds["given"]["rows"], kinds["sampled"]["rows"]) == (11, 802 - 11)
    assert manifest["provenance"]["notes"][0].startswith("21 contexts are few, so 8,000 more were sampled")


@pytest.mark.slow
def test_scores_are_cosines_where_they_are_asked_for(catalogue, tmp_path):
    head = shortlist.load(export_catalogue(tmp_path, catalogue, "--cosine", "--no-report"))
    users = sample_contexts(Dense(catalogue), 200, seed=9)
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    lengths = np.linalg.norm(catalogue, axis=1, keepdims=True)
    directions = catalogue / np.where(lengths > 0, lengths, 1)
    top = head.topk(users, K, exact=True, scores=True)
    np.testing.assert_allclose(top.scores[:, 0], (users @ directions.T).max(axis=1), rtol=1e-5)
    assert measure_recall(head, directions, users) > 0.98
    np.testing.assert_array_equal(head.topk(users * 7, K, exact=True).ids, top.ids)


def test_trained_methods_need_contexts(tmp_path, capsys):
    np.save(tmp_path / "items.npy", np.ones((30, 4), np.float32))
    layer = ["--weights", str(tmp_path / "items.npy"), "--out", str(tmp_path / "items" / "1")]
    assert main(["export", *layer, "--method", "ds"]) == 1
    assert "method ds is trained on contexts: give --contexts" in capsys.readouterr().err
