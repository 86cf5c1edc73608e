"""From a weight matrix to a bundle, checked with the real runtime."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import shortlist
import torch
from shortlist.errors import BadInput, BundleError, QualityError, VersionExists
from shortlist.plans.common import crossover
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.inputs.splits import split_held_out
from shortlist_exporter.methods.registry import METHODS, find_method

from tests.support.layers import logits_of, make_contexts, make_dense, make_head

ATOL = 1e-4
FORMS = {
    "published": {"width": "4", "full_view": "30"},
    "context fp32": {"basis": "context", "preview": "fp32", "width": "6", "full_view": "30"},
    "context int8": {"basis": "context", "preview": "int8", "width": "6", "full_view": "30"},
}
contexts = make_contexts()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "lm" / "1"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [True, False])
def test_onnx_path_agrees_with_torch(tmp_path, form, bias):
    values = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    dense = make_dense(bias=values if bias else None)
    fit = METHODS["svd"].fit(dense, contexts.contexts[:-40], FORMS[form], 0)
    head = make_head(tmp_path, dense, contexts, options=FORMS[form])
    rows = contexts.contexts[-40:]
    ids, logprobs = fit.module.topk(torch.from_numpy(rows), 5)
    top = head.topk(rows, 5)
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=2e-3 if "int8" in form else ATOL)
    assert (top.ids == ids.numpy()).mean() > 0.99
    ours = torch.from_numpy(head.plan.preview(context=rows)[0])
    torch.testing.assert_close(ours, fit.module.preview_logits(torch.from_numpy(rows)), atol=5e-2, rtol=1e-3)


def test_every_graph_runs_alone(tmp_path):
    folder = make_head(tmp_path, make_dense()).folder
    for path in (folder / "graphs").glob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        feeds = {"context": contexts.contexts[:2], "ids": np.zeros((2, 1), np.int64)}
        session.run(None, {tensor.name: feeds[tensor.name] for tensor in session.get_inputs()})


def test_manifest_says_on_which_kinds_of_text_it_was_measured(tmp_path):
    documents = (np.arange(len(contexts.contexts)) // 10).astype(np.int32)
    kinds = {"even": list(range(0, 1000, 2)), "odd": list(range(1, 1000, 2)), "absent": [5000]}
    head = make_head(tmp_path, make_dense(), replace(contexts, documents=documents, kinds=kinds))
    quality = head.manifest.quality
    assert set(quality.kinds) == {"even", "odd"}
    assert sum(kind.rows for kind in quality.kinds.values()) == quality.rows
    mean = sum(kind.rows * kind.p_at_1 for kind in quality.kinds.values()) / quality.rows
    assert mean == pytest.approx(quality.p_at_1)


def test_manifest_says_what_is_what(tmp_path):
    manifest = make_head(tmp_path, make_dense(), labels=[str(i) for i in range(300)]).manifest
    assert (manifest.name, manifest.version, manifest.method, manifest.plan) == ("lm", 1, "svd", "preview")
    assert (manifest.classes, manifest.dim, manifest.max_k) == (300, 16, 300)
    assert manifest.quality.rows == 40
    assert 0 < manifest.quality.p_at_5 <= 1
    assert 0 < manifest.quality.cost_macs < 1
    assert set(manifest.provenance) >= {"weights_sha256", "contexts_sha256", "versions", "command", "time"}
    paths = {path.relative_to(tmp_path / "lm" / "1").as_posix() for path in (tmp_path / "lm" / "1").rglob("*.*")}
    assert paths == set(manifest.files) | {"manifest.json"}


def test_weights_are_stored_once_for_all_graphs(tmp_path):
    folder = make_head(tmp_path, make_dense(3000, 32), make_contexts(dim=32)).folder / "graphs"
    assert (folder / "weight.bin").stat().st_size == 3000 * 32 * 4
    sizes = [path.stat().st_size for path in folder.glob("*.onnx")]
    assert sizes
    assert max(sizes) < 20_000, "no graph carries weights of its own"


def test_promise_not_kept_leaves_nothing(out):
    options = {"width": "1", "full_view": "1"}
    with pytest.raises(QualityError, match=r"P@1 is 0\.\d+ on 40 held-out contexts, under the 0.999 .* or width"):
        export(make_dense(), contexts, out, Request("svd", options=options, promise={1: 0.999}, threads=1))
    assert not out.parent.exists()


def test_precision_is_promised_at_any_k(out):
    request = Request("svd", options=FORMS["published"] | {"full_view": "5"}, threads=1)
    with pytest.raises(QualityError, match=r"P@20 is 0\.\d+ on 40 held-out contexts, under the 1.0 asked for"):
        export(make_dense(), contexts, out, replace(request, promise={20: 1.0}))
    assert list(export(make_dense(), contexts, out, replace(request, promise={1: 0.1, 20: 0.1})).quality.p_at) == [20]
    with pytest.raises(BadInput, match="P@301 cannot be measured: k goes from 1 to 300"):
        export(make_dense(), contexts, out.with_name("2"), replace(request, promise={301: 0.1}))
    with pytest.raises(BadInput, match="P@10 cannot be measured: k goes from 1 to 5"):
        export(make_dense(), contexts, out.with_name("2"), replace(request, promise={10: 0.1}, max_k=5))


def test_an_existing_version_is_refused_before_any_work(tmp_path, out):
    make_head(tmp_path, make_dense())
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(VersionExists):
        export(make_dense(), contexts, out, Request())
    assert (out / "manifest.json").read_bytes() == before


def test_by_default_a_head_is_grouped_and_promises_a_precision(out):
    manifest = export(make_dense(3000, 16), make_contexts(rows=2000), out, Request(threads=1))
    assert (manifest.method, manifest.settings.promise) == ("grouped", 0.99)
    assert manifest.quality.p_at_1 >= 0.99


def test_no_dense(tmp_path):
    head = make_head(tmp_path, make_dense(), keep_dense=False, options=FORMS["context int8"])
    assert not (head.folder / "graphs" / "dense.onnx").exists()
    assert not (head.folder / "graphs" / "columns.bin").exists()
    with pytest.raises(BadInput, match="exported with --no-dense"):
        head.topk(contexts.contexts[:1], 1, exact=True)
    assert sorted(head.topk(contexts.contexts[:1], 300).ids[0]) == list(range(300))


def test_a_manifest_says_when_dense_takes_over(monkeypatch, out):
    """The largest of those for which the fewest timings speak against dense: it won at 4, not at 8, at 16 again."""
    monkeypatch.setattr(crossover, "dense_wins", lambda plan, dense, contexts, rows: rows not in (1, 2, 8))
    manifest = export(make_dense(), contexts, out, Request("svd", options=FORMS["published"], threads=1))
    assert manifest.dense_crossover == 16
    head = shortlist.load(out, threads=1)
    below, above = head.topk(contexts.contexts[:15], 5), head.topk(contexts.contexts[:16], 5)
    assert (below.normalizer, set(below.scored.tolist())) == ("estimated", {30})
    assert (above.normalizer, set(above.scored.tolist())) == ("exact", {300})


def test_dense_that_always_wins_leaves_single_rows_to_the_head_and_the_export_says_so(monkeypatch, out):
    """A crossover of 1 would never let the head answer whose quality the manifest promises."""
    monkeypatch.setattr(crossover, "dense_wins", lambda plan, dense, contexts, rows: True)
    manifest = export(make_dense(), contexts, out, Request("svd", options=FORMS["published"], threads=1))
    assert manifest.dense_crossover == 2
    assert crossover.ALWAYS_SLOWER in manifest.provenance["notes"]
    head = shortlist.load(out, threads=1)
    assert head.topk(contexts.contexts[:1], 5).normalizer == "estimated"
    assert head.topk(contexts.contexts[:2], 5).normalizer == "exact"


def test_dense_that_never_wins_is_not_mentioned(monkeypatch, out):
    monkeypatch.setattr(crossover, "dense_wins", lambda plan, dense, contexts, rows: False)
    manifest = export(make_dense(), contexts, out, Request("svd", options=FORMS["published"], threads=1))
    assert manifest.dense_crossover is None
    assert crossover.ALWAYS_SLOWER not in manifest.provenance.get("notes", [])


@pytest.mark.parametrize(("full_view", "low"), [("5", True), ("299", False)])
def test_an_export_says_in_one_line_where_it_misses_many(out, full_view, low):
    options = FORMS["published"] | {"full_view": full_view}
    manifest = export(make_dense(), contexts, out, Request("svd", options=options, fallback=False, threads=1))
    notes = [note for note in manifest.provenance.get("notes", []) if "under 0.98" in note]
    assert (manifest.quality.p_at_1 < 0.98) == low
    assert len(notes) == low


@pytest.mark.parametrize(
    ("method", "options"),
    [("cascade", {"width": "1", "full_view": "5", "candidates": "5"}), ("l2s", {"budget": "5", "rounds": "1"})],
)
def test_what_finds_more_is_said_by_method(out, method, options):
    manifest = export(make_dense(), contexts, out, Request(method, options, fallback=False, threads=1))
    (note,) = [note for note in manifest.provenance["notes"] if "under 0.98" in note]
    assert note.endswith(METHODS[method].ways_to_find_more)
    assert "full_view" not in note


def precision_of(ids, true):
    return np.mean([len(set(mine) & set(right)) / len(right) for mine, right in zip(ids, true, strict=True)])


def test_precision_is_measured_at_every_k_that_is_asked_for(out):
    """Each by requests for so many classes, those for 1, 5 and 10 too: they are not searched as far as one for ten."""
    request = Request("svd", options=FORMS["published"] | {"full_view": "5"}, threads=1)
    manifest = export(make_dense(), contexts, out, replace(request, at=(1, 20, 100)))
    head, quality = shortlist.load(out, threads=1), manifest.quality
    assert list(quality.p_at) == [1, 20, 100]
    assert head.manifest.quality == quality
    _, held_rows = split_held_out(contexts, 0)
    rows = contexts.contexts[held_rows]
    best = np.argsort(-logits_of(make_dense(), rows), axis=1)
    measured = {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10} | quality.p_at
    for k, share in measured.items():
        assert share == pytest.approx(precision_of(head.topk_by_plan(rows, k).ids, best[:, :k]))
    assert quality.p_at_1 < precision_of(head.topk_by_plan(rows, 10).ids[:, :1], best[:, :1])
    assert any(f"P@1 is {quality.p_at_1:.4f}" in note for note in manifest.provenance["notes"])
    plain = export(make_dense(), contexts, out.with_name("2"), request)
    assert plain.quality == manifest.quality.model_copy(update={"p_at": {}})
    with pytest.raises(BadInput, match="P@301 cannot be measured: k goes from 1 to 300"):
        export(make_dense(), contexts, out.with_name("3"), replace(request, at=(1, 301)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weight": np.full((300, 16), np.nan, np.float32)}, "weight holds NaN or infinity in 300 of 300 rows"),
        ({"weight": np.ones((300, 16))}, "weight is float64: give a numpy array of float32"),
        ({"weight": np.ones(300, np.float32)}, r"weight has shape \[300\]: give 2 axes"),
        ({"bias": np.full(300, np.inf, np.float32)}, "bias holds NaN or infinity"),
        ({"bias": np.ones(299, np.float32)}, "bias has 299 entries for 300 rows of weight"),
        ({"padded": np.array([300])}, "padded holds id 300 but classes go from 0 to 299"),
        ({"padded": np.array([-1])}, "padded holds id -1"),
        ({"padded": np.array([3, 3])}, "padded must be different ids"),
    ],
)
def test_a_layer_made_in_python_is_checked_as_files_are(out, changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        export(replace(make_dense(), **changes), contexts, out, Request())
    assert not out.parent.exists()


def test_contexts_made_in_python_are_checked_as_files_are(out):
    rows = contexts.contexts.copy()
    rows[7, 3] = np.inf
    with pytest.raises(BadInput, match="contexts holds NaN or infinity in 1 of 400 rows, first in row 7"):
        export(make_dense(), Contexts(rows), out, Request())
    with pytest.raises(BadInput, match="contexts is float64"):
        export(make_dense(), Contexts(rows.astype(np.float64)), out, Request())


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Request(method="magic"), "there is no method 'magic': choose one of full, svd, l2s"),
        (Request("svd", options={"basis": "north"}), "option basis=north is wrong"),
        (Request("svd", options={"widht": "3"}), "there is no option 'widht'"),
        (Request("full", options={"width": "3"}), "there is no option 'width': this method has none"),
        (Request("svd", options={"width": "17"}), "width=17 is over d = 16"),
        (Request("svd", options={"width": "0"}), "option width=0 is wrong"),
        (Request("svd", options={"full_view": "301"}), "full_view=301 is over V = 300"),
        (Request(labels=["a"]), "1 labels for 300 classes"),
        (Request(max_k=301), "max_k is 301"),
        (Request(seed=-1), "seed is -1"),
        (Request(seed=1 << 63), "give a whole number from 0"),
        (Request(promise={1: 99.0}), "P@1 is to reach 99.0: give a share"),
        (Request(promise={5: float("nan")}), "P@5 is to reach nan"),
        (Request(method="full", keep_dense=False), "--no-dense leaves nothing"),
    ],
)
def test_bad_requests(out, request_, sentence):
    with pytest.raises(BadInput, match=sentence):
        export(make_dense(), contexts, out, request_)
    assert not out.exists()


def test_bad_pairs(out):
    with pytest.raises(BadInput, match=r"d = 5 .*d = 16"):
        export(make_dense(), make_contexts(dim=5), out, Request())
    with pytest.raises(BadInput, match="a single row"):
        export(make_dense(), Contexts(contexts.contexts[:1]), out, Request())
    with pytest.raises(BadInput, match="every row of the weight is marked as padding"):
        export(make_dense(padded=np.arange(300)), contexts, out, Request())
    with pytest.raises(BundleError, match="whole number from 1"):
        export(make_dense(), contexts, out.parent / "latest", Request())
    with pytest.raises(BadInput, match="is not UTF-8"):
        export(make_dense(), contexts, out.parents[1] / "h\udcfcte" / "lm" / "1", Request())


def test_smallest_layer(tmp_path):
    dense = Dense(np.ones((1, 1), np.float32))
    head = make_head(tmp_path, dense, Contexts(np.ones((2, 1), np.float32)))
    top = head.topk([[2.0]], 1)
    assert (top.ids.tolist(), top.logprobs.tolist()) == ([[0]], [[0.0]])


def test_method_named():
    assert find_method("svd") is METHODS["svd"]


def test_calibration_holds_exact_answers(tmp_path):
    from safetensors.numpy import load_file

    folder = make_head(tmp_path, make_dense()).folder
    tensors = load_file(folder / "calibration.safetensors")
    logits = tensors["contexts"] @ make_dense().weight.T
    assert (tensors["ids"][:, 0] == logits.argmax(axis=1)).all()
    assert json.loads((folder / "manifest.json").read_text())["digest"]
