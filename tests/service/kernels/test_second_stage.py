"""Rows of plan `screen` with a second stage: compiled loops against numpy and the graphs, for every target."""

import shutil
from functools import lru_cache

import numpy as np
import pytest
import shortlist
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import seal
from shortlist.errors import BundleError
from shortlist.head import Head
from shortlist.kernels.native import library
from shortlist.plans.common.base import RESCORED_PER_K
from shortlist_models import tail

from tests.support.kernels import list_targets
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

CLASSES = 1200  # exact rows are mapped, of larger layers than 1,024 classes
OPTIONS = {"clusters": "5", "budget": "170", "rounds": "0", "second_stage": "int8", "width": "13", "full_view": "30"}
BIAS = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
WHOLE = {"bias": BIAS, "logit_scale": 0.7, "soft_cap": 30.0, "padded": np.array([5, 17])}
FORMS = {
    "plain": ({}, {}),
    "bias, scale, soft cap, padding": (WHOLE, {"second_probe": "0.4"}),
    "two clusters": ({}, {"probes": "2"}),
    "fall-back, d = 19": ({"dim": 19}, {"fallback": "0.3", "second_probe": "0.3"}),
    "terms": (WHOLE, {"probes": "2", "tail_terms": "8", "fallback": "0.1"}),
}


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    """A bundle's folder and contexts."""
    layer, options = FORMS[request.param]
    dense = make_dense(CLASSES, **layer)
    contexts = make_contexts(400, dense.dim)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "STEPS", 100)
        head = make_head(tmp_path_factory.mktemp("staged"), dense, contexts, method="l2s", options=OPTIONS | options)
    return head.folder, contexts.contexts[:60].copy()


@pytest.fixture(params=list_targets())
def target(request, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield request.param
    library.open_target.cache_clear()


def round_columns(matrix):
    """Columns [d, n] as int8 has them, each in a scale of its own."""
    scale = np.abs(matrix).max(axis=0) / np.float32(127)
    return np.rint(matrix / scale) * scale


@lru_cache(maxsize=1)
def read_arrays(folder):
    """The bundle's tables and mapped arrays by name, the projection as int8 has it."""
    bundle = Bundle(folder)
    arrays = {role: bundle.map_array(f"screen_{role}") for role in ("projection", "previews", "scales")}
    bias = bundle.map_array("exact_bias") if bundle.has_arrays("exact_bias") else None
    rounded = {"projection": round_columns(arrays["projection"]), "bias": bias}
    return bundle.tensors("index.safetensors") | arrays | rounded


def answer_by_numpy(head: Head, row, k):
    """Ids, log-probabilities and how many classes were scored exactly, of one row that dense does not answer.

    Graphs are no reference: ONNX Runtime's int8 products saturate on processors without VNNI.
    """
    arrays = read_arrays(head.folder)
    offsets, ids, constants = (arrays[name] for name in ("offsets", "ids", "tail"))
    projected = row @ arrays["projection"]
    scale = np.abs(projected).max() / np.float32(127)
    levels, width = np.rint(projected / scale).astype(np.int64), projected.size
    previews = {}
    (route,) = head.plan.choose_routes(row[None])
    for cluster in reversed(route):  # a class of both clusters has the preview of the best
        first, last = offsets[cluster : cluster + 2]
        columns = arrays["previews"].reshape(-1)[width * first : width * last].reshape(width, -1)
        products = (levels @ columns.astype(np.int64)) * arrays["scales"][first:last] * scale
        previews |= dict(zip(ids[first:last].tolist(), products, strict=True))
    classes = np.array(sorted(previews))
    logits = np.array([previews[i] for i in classes.tolist()], np.float32)
    if arrays["bias"] is not None:
        logits = logits + arrays["bias"][classes]
    logits *= head.manifest.logit_scale
    if head.manifest.soft_cap:
        logits = head.manifest.soft_cap * np.tanh(logits / head.manifest.soft_cap)
    best = np.sort(np.argsort(-logits)[: max(head.manifest.settings.full_view, RESCORED_PER_K * k)])
    logits[best] = head.exact_rows.score_row(row, classes[best])
    order = best[np.lexsort((classes[best], -logits[best]))][:k]
    normalizer = np.logaddexp.reduce(logits.astype(np.float64)) + constants[route[0]]
    if head.plan.terms is not None:
        rest = head.plan.terms.graph(context=row[None])[0][0]
        normalizer = np.logaddexp(normalizer, min(rest, normalizer + head.manifest.settings.tail_limit))
    return classes[order], logits[order] - normalizer, best.size


def assert_equal_to_numpy(head, rows, k):
    """Row by row, all together; rows that dense answers are left out."""
    top = head.topk_by_plan(rows, k)
    answered = np.flatnonzero(top.scored < CLASSES)
    assert len(answered) > len(rows) // 2
    for i in answered:
        ids, logprobs, scored = answer_by_numpy(head, rows[i], k)
        np.testing.assert_array_equal(top.ids[i], ids)
        np.testing.assert_allclose(top.logprobs[i], logprobs, atol=2e-4)
        assert top.scored[i] == scored


@pytest.mark.parametrize("threads", [1, 3])
def test_loops_equal_numpy(form, target, threads):
    folder, rows = form
    head = shortlist.load(folder, threads=threads)
    assert (head.kernels, head.plan.loops is not None) == (target, True)
    for k in (1, 5, 40):
        assert_equal_to_numpy(head, rows, k)


def test_single_rows_are_rows_of_a_batch(form, target):
    folder, rows = form
    head = shortlist.load(folder, threads=1)
    wanted = head.topk_by_plan(rows, 5)
    off = 1e-6 if head.plan.terms is None else 3e-6  # the graph of terms sums rows in other orders
    for i, row in enumerate(rows):
        top = head.topk(row[None], 5)
        np.testing.assert_array_equal(top.ids[0], wanted.ids[i])
        np.testing.assert_allclose(top.logprobs[0], wanted.logprobs[i], atol=off)
        assert top.scored[0] == wanted.scored[i]


def test_loops_equal_graphs(form, target, monkeypatch):
    """But for the projection, whose columns loops have in int8; these previews are too small to saturate."""
    folder, rows = form
    head = shortlist.load(folder, threads=1)
    by_loops = head.topk_by_plan(rows, 5)
    monkeypatch.setattr(head.plan, "loops", None)
    by_graphs = head.topk_by_plan(rows, 5)
    np.testing.assert_array_equal(by_loops.scored, by_graphs.scored)
    np.testing.assert_array_equal(by_loops.ids, by_graphs.ids)
    np.testing.assert_allclose(by_loops.logprobs, by_graphs.logprobs, atol=5e-3)


def test_numerators_are_exact(form, target):
    folder, rows = form
    head = shortlist.load(folder, threads=1)
    top = head.topk_by_plan(rows, 5)
    exact = head.logprobs(rows, top.ids, exact=True)
    np.testing.assert_allclose(np.diff(top.logprobs), np.diff(exact), atol=2e-5)


def test_a_larger_full_view_scores_more_exactly(form, target):
    folder, rows = form
    head = shortlist.load(folder, threads=1).with_settings(full_view=60)
    assert_equal_to_numpy(head, rows, 5)
    assert (head.topk(rows, 5).scored >= 60).all()


def test_bundles_without_the_arrays_are_answered_by_graphs(form, tmp_path):
    folder, rows = form
    head = copy_with_arrays(folder, tmp_path / "lm" / "1", lambda arrays: {"exact_weight": arrays["exact_weight"]})
    assert head.plan.loops is None
    assert head.topk(rows, 5).ids.shape == (len(rows), 5)


def test_previews_of_another_shape_are_refused(form, tmp_path):
    def change(arrays):
        scales = arrays["screen_scales"]
        return arrays | {"screen_scales": scales.model_copy(update={"shape": (1, *scales.shape)})}

    with pytest.raises(BundleError, match=r"the array 'screen_scales', which has shape .*: export the bundle again"):
        copy_with_arrays(form[0], tmp_path / "lm" / "1", change)


def copy_with_arrays(folder, out, change) -> Head:
    """The bundle with other arrays in its manifest."""
    shutil.copytree(folder, out)
    manifest = Bundle(out).manifest
    (out / "manifest.json").unlink()
    seal(out, manifest.model_copy(update={"arrays": change(manifest.arrays)}))
    return Head(Bundle(out), "cpu", 1)
