"""A bundle made as another one was: the same layer, method, options, and from the same contexts the same head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from shortlist.bundle.names import Names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist_exporter.export.like import load_like_layer, make_like_request
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_models.mixtures.mixtape import Mixtape

from tests.support.heads import grouped, mixtape
from tests.support.layers import CLASSES, call_cli, list_layers, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

LAYERS = list_layers(grouped.CLASSES)
NAMES = Names.make([f"item-{i}" for i in range(300)])


@pytest.fixture(params=LAYERS)
def dense(request):
    return make_dense(grouped.CLASSES, grouped.DIM, **LAYERS[request.param])


def export_like(bundle, contexts, tmp_path, *flags):
    save_file({"contexts": contexts}, tmp_path / "x.safetensors")
    out = tmp_path / "refit" / "lm" / "2"
    flags = ("--like", bundle, "--contexts", tmp_path / "x.safetensors", "--out", out, "--no-report", *flags)
    result = call_cli("export", *flags, "--threads", "1")
    return result, out


def check_equal(layer, dense):
    assert np.array_equal(layer.weight, dense.weight)
    assert (layer.bias is None) == (dense.bias is None)
    if dense.bias is not None:
        assert np.array_equal(layer.bias, dense.bias)
    assert np.array_equal(layer.padded, dense.padded)
    assert (layer.logit_scale, layer.soft_cap, layer.dtype) == (dense.logit_scale, dense.soft_cap, dense.dtype)


def test_the_layer_of_a_bundle(dense, tmp_path, prove_small_layers):
    bundle = Bundle(make_head(tmp_path, dense, grouped.contexts, method="grouped", options=grouped.OPTIONS).folder)
    check_equal(load_like_layer(bundle), dense)


@pytest.mark.parametrize("layer", list_layers(CLASSES, padded=(5, 299)).values(), ids=["plain", "whole"])
def test_the_layer_of_a_bundle_whose_graphs_hold_it(tmp_path, layer):
    dense = make_dense(dtype="float16", sha256="ab" * 32, **layer)
    layer = load_like_layer(Bundle(make_head(tmp_path, dense).folder))
    check_equal(layer, dense)
    assert layer.sha256 == dense.sha256


def test_the_layer_beside_a_trained_head_is_not_the_head_s_own(tmp_path):
    mixtape.write(tmp_path / "lm" / "1", "loops", mixtape.make_module(*mixtape.SIZES["loops"]))
    layer = load_like_layer(Bundle(tmp_path / "lm" / "1"))
    bias = np.ones(1100, np.float32)
    check_equal(layer, make_dense(*mixtape.SIZES["loops"], bias=bias, logit_scale=0.7, soft_cap=5.0))


def test_the_request_of_a_bundle(tmp_path):
    labels = [str(i) for i in range(300)]
    request = {"options": {"basis": "context", "width": "8"}, "promise": {1: 0.5}, "at": (1, 7), "max_k": 50, "seed": 3}
    head = make_head(tmp_path, make_dense(), labels=labels, **request)
    like = make_like_request(Bundle(head.folder))
    assert like == Request(method="svd", labels=labels, fallback=False, **request)


def test_a_refit_is_the_same_head_on_other_contexts(tmp_path):
    options = {"basis": "context", "width": "8", "full_view": "40"}
    head = make_head(tmp_path, make_dense(), options=options)
    others = make_contexts(rows=300, seed=9).contexts
    result, out = export_like(head.folder, others, tmp_path)
    assert result.returncode == 0, result.stderr
    refit = Head(Bundle(out), "cpu", 1)
    assert refit.manifest.fit == head.manifest.fit
    assert refit.manifest.settings.full_view == head.manifest.settings.full_view
    assert refit.manifest.fallback is False
    assert refit.manifest.provenance["contexts_rows"] == 300
    rows = make_contexts(rows=20, seed=5).contexts
    assert np.array_equal(refit.topk(rows, 5, exact=True).ids, head.topk(rows, 5, exact=True).ids)
    assert not np.array_equal(refit.topk(others, 9).logprobs, head.topk(others, 9).logprobs), "fitted anew"


def test_a_head_that_was_trained_elsewhere_has_to_be_given_again(tmp_path):
    torch.manual_seed(0)
    module, layer = Mixtape(16, CLASSES).eval(), make_dense()
    save_file({name: value.numpy() for name, value in module.state_dict().items()}, tmp_path / "head.safetensors")
    given = Request("mixtape", threads=1, head=tmp_path / "head.safetensors")
    bundle, rows = tmp_path / "lm" / "1", make_contexts().contexts
    export(layer, make_contexts(), bundle, given)
    result, out = export_like(bundle, rows, tmp_path)
    assert result.returncode == 1
    assert "was trained elsewhere: give --head, or --method to train another" in result.stderr.splitlines()[-1]
    assert not out.exists()
    result, out = export_like(bundle, rows, tmp_path, "--head", tmp_path / "head.safetensors")
    assert result.returncode == 0, result.stderr
    logprobs = [Head(Bundle(folder), "cpu", 1).topk(rows[:9], 5, exact=True).logprobs for folder in (bundle, out)]
    np.testing.assert_array_equal(*logprobs)


def test_new_weights_and_what_else_is_given_go_first(tmp_path):
    head = make_head(tmp_path, make_dense(), options={"basis": "context", "width": "8"}, seed=3)
    weight = make_dense(seed=4).weight
    np.save(tmp_path / "w.npy", weight)
    flags = ("--weights", tmp_path / "w.npy", "--set", "width=9", "--max-k", "30", "--seed", "0")
    result, out = export_like(head.folder, make_contexts(rows=300, seed=9).contexts, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    bundle = Bundle(out)
    assert (bundle.manifest.fit["width"], bundle.manifest.fit["basis"], bundle.manifest.max_k) == (9, "context", 30)
    assert bundle.manifest.seed == 0
    assert np.array_equal(load_like_layer(bundle).weight, weight)


@pytest.mark.parametrize(
    ("layer", "metadata", "words"),
    [
        ({"logit_scale": 0.5, "soft_cap": 30.0}, {}, "logit scale 0.5, soft-cap 30"),
        ({"bias": np.ones(CLASSES, np.float32)}, {}, "a bias"),
        ({"logit_scale": 0.5, "soft_cap": 30.0}, {"logit_scale": "0.25", "soft_cap": "20"}, None),
        ({"logit_scale": 0.5}, {"soft_cap": "20"}, "logit scale 0.5"),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_what_new_weights_lack_of_the_layer_before_is_said(tmp_path, layer, metadata, words):
    """Weights in npy files come without logit scale and soft-cap, which were left out without a word."""
    head = make_head(tmp_path, make_dense(**layer))
    save_file({"weight": make_dense(seed=4).weight}, tmp_path / "w.safetensors", metadata=metadata)
    contexts = make_contexts(rows=300, seed=9).contexts
    result, _ = export_like(head.folder, contexts, tmp_path, "--weights", tmp_path / "w.safetensors")
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stderr.splitlines() if line.startswith("note: the layer of")]
    sentence = f"note: the layer of {head.folder} has {words}, and the one given has not: unless that is meant, give"
    assert [line.startswith(sentence) for line in said] == ([] if words is None else [True])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--method", "full"), "leave --method out"),
        (("--set", "colour=red"), "colour"),
        (("--bias", "bias.npy"), "are of --weights"),
    ],
)
def test_what_is_refused(tmp_path, flags, words):
    head = make_head(tmp_path, make_dense())
    result, out = export_like(head.folder, make_contexts(rows=300).contexts, tmp_path, *flags)
    assert (result.returncode, out.exists()) == (1, False)
    assert words in result.stderr


@pytest.mark.parametrize(
    ("taken", "flags", "words"),
    [
        ({"max_k": 290}, (), "max_k is 290, as in {}, but the layer has 200 classes: give --max-k"),
        ({"at": (1, 250)}, (), "P@250 is measured, as in {}, but k goes from 1 to 200: give --at"),
        ({"at": (1, 150)}, ("--max-k", "90"), "P@150 is measured, as in {}, but k goes from 1 to 90: give --at"),
        (
            {"promise": {250: 0.1}},
            (),
            "P@250 is promised, as in {}, but k goes from 1 to 200: give --method and --set in place of --like",
        ),
        ({"labels": ["word"] * 300}, (), "there are 300 labels in {} but 200 classes in the layer: give --labels"),
        ({"names": NAMES}, (), "there are 300 names in {} but 200 classes in the layer: give --names"),
        (
            {"sets": {"few": np.array([9, 250])}},
            (),
            "set few of {} holds id 250 but classes go from 0 to 199: give --set-file few=FILE",
        ),
        ({"at": (1, 150)}, ("--max-k", "290"), "max_k is 290 but the layer has 200 classes: choose 1 to 200"),
    ],
)
def test_what_a_layer_of_fewer_classes_does_not_take_is_said_to_be_of_the_bundle(tmp_path, taken, flags, words):
    head = make_head(tmp_path, make_dense(), method="full", options={}, **taken)
    np.save(tmp_path / "w.npy", make_dense(200, seed=4).weight)
    flags = ("--weights", tmp_path / "w.npy", *flags)
    result, out = export_like(head.folder, make_contexts().contexts, tmp_path, *flags)
    assert (result.returncode, out.exists()) == (1, False)
    assert words.format(head.folder) in result.stderr


def test_what_is_given_beside_a_bundle_of_more_classes_is_not_taken_from_it(tmp_path):
    taken = {"max_k": 290, "at": (1, 250), "labels": ["word"] * 300, "sets": {"few": np.array([9, 250])}}
    head = make_head(tmp_path, make_dense(), method="full", options={}, names=NAMES, **taken)
    np.save(tmp_path / "w.npy", make_dense(200, seed=4).weight)
    (tmp_path / "names").write_text("\n".join(f"item-{i}" for i in range(200)), "utf-8")
    flags = ("--weights", tmp_path / "w.npy", "--names", tmp_path / "names", "--max-k", "100", "--at", "20")
    result, out = export_like(head.folder, make_contexts().contexts, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    manifest = Bundle(out).manifest
    assert (manifest.max_k, list(manifest.quality.p_at)) == (100, [20])


def test_without_a_layer_or_a_record_there_is_nothing_to_go_by(tmp_path, small_repository):
    bundle = Bundle(make_head(tmp_path, make_dense(), keep_dense=False).folder)
    with pytest.raises(BadInput, match="give --weights"):
        load_like_layer(bundle)
    del bundle.manifest.provenance["request"]
    with pytest.raises(BadInput, match="does not say how it was asked for"):
        make_like_request(bundle)
    np.save(tmp_path / "x.npy", make_contexts().contexts)
    result = call_cli("export", "--contexts", tmp_path / "x.npy", "--out", tmp_path / "a" / "1")
    assert (result.returncode, "give --weights, or --like" in result.stderr) == (1, True)


@pytest.mark.parametrize("flags", [(), ("--weights", "w.npy")])
def test_a_bundle_like_one_of_cosines_is_of_cosines(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", make_dense(seed=4).weight)
    np.save("x.npy", make_contexts().contexts)
    layer = ("--weights", "w.npy", "--contexts", "x.npy", "--cosine", "--method", "full", "--out", "first/1")
    assert call_cli("export", *layer, "--no-report", "--threads", "1").returncode == 0
    result, out = export_like("first/1", make_contexts(seed=9).contexts, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    first, bundle = Bundle(Path("first/1")), Bundle(out)
    assert np.array_equal(load_like_layer(bundle).weight, load_like_layer(first).weight)
    rows = [load_like_layer(bundle).weight, bundle.tensors(CALIBRATION_FILE)["contexts"]]
    np.testing.assert_allclose(np.linalg.norm(np.concatenate(rows), axis=1), 1, rtol=1e-6)
    assert bundle.manifest.provenance["cosine"] is True


def test_sets_are_written_and_made_again(tmp_path):
    head = make_head(tmp_path, make_dense(), method="full", options={}, sets={"few": np.array([9, 3])})
    rows = make_contexts(rows=4, seed=5).contexts
    np.testing.assert_array_equal(head.topk(rows, 2, within="few").ids, head.topk(rows, 2, allow=[3, 9]).ids)
    assert make_like_request(Bundle(head.folder)).sets["few"].tolist() == [3, 9]


def test_labels_and_sets_follow_the_names_of_another_layer(tmp_path):
    names = NAMES.read(np.arange(300)).tolist()
    texts = {"names": NAMES, "labels": [f"word {i}" for i in range(300)]}
    head = make_head(tmp_path, make_dense(), method="full", options={}, sets={"few": np.array([9, 3])}, **texts)
    np.save(tmp_path / "w.npy", make_dense(200, seed=4).weight)
    (tmp_path / "names").write_text("\n".join([*reversed(names[:199]), "new"]), "utf-8")
    flags = ("--weights", tmp_path / "w.npy", "--names", tmp_path / "names")
    result, out = export_like(head.folder, make_contexts().contexts, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    refit = Head(Bundle(out), "cpu", 1)
    top = refit.topk(make_contexts(rows=4, seed=5).contexts, 2, within="few", names=True)
    assert set(top.names.ravel()) == {"item-3", "item-9"}
    assert [refit.labels[i] for i in (0, 198, 199)] == ["word 198", "word 0", "new"]


@pytest.mark.parametrize(
    ("flags", "position"),
    [
        ((), 7),
        (("--item-position", "9"), 9),
        (("--weights", "w.npy"), None),
        (("--out", "other/1"), None),  # a model of another name, whose log is another
    ],
)
def test_the_layer_of_a_bundle_holds_the_changes_that_the_bundle_holds(tmp_path, monkeypatch, flags, position):
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", make_dense(seed=4).weight)
    head = make_head(tmp_path, make_dense(), method="full", options={}, item_position=7)
    result, out = export_like(head.folder, make_contexts().contexts, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    out = Path("other/1") if "--out" in flags else out
    assert Bundle(out).manifest.provenance.get("item_position") == position
