"""Cutting a bundle: what each shard is, and what cannot be cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
from shortlist.bundle.class_sets import SETS_FOLDER, list_set_names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.errors import BadInput, VersionExists
from shortlist.fleet.shards.ranges import ClassRange
from shortlist.fleet.shards.sharded_head import ShardedHead
from shortlist_exporter.export.shard import cut_layer, export_shards
from shortlist_exporter.inputs.sampled import normalize_layer
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.heads import adaptive
from tests.support.layers import CLASSES, call_cli, make_contexts, make_dense, make_head, run_cli


def test_a_layer_is_cut_with_its_bias_and_its_padding():
    weight = np.arange(20, dtype=np.float32).reshape(10, 2)
    layer = Dense(weight, np.arange(10, dtype=np.float32), 0.5, 3.0, np.array([1, 4, 8]))
    part = cut_layer(layer, ClassRange(3, 9))
    assert np.array_equal(part.weight, weight[3:9])
    assert part.bias.tolist() == [3, 4, 5, 6, 7, 8]
    assert part.padded.tolist() == [1, 5]
    assert (part.logit_scale, part.soft_cap) == (0.5, 3.0)


@pytest.mark.slow
def test_shards_are_bundles_of_class_ranges_made_as_the_whole_was(small_repository, tmp_path):
    process = run_cli("shard", small_repository / "lm" / "1", "--shards", 7, "--out", tmp_path, "--threads", 1)
    assert process.returncode == 0, process.stderr
    assert "the rows that" in process.stderr
    entries = json.loads((tmp_path / "shards.json").read_text())
    assert [entries["shards"][i]["stop"] for i in range(6)] == [entry["start"] for entry in entries["shards"][1:]]
    assert (entries["shards"][0]["start"], entries["shards"][-1]["stop"]) == (0, CLASSES)
    labels = []
    for entry in entries["shards"]:
        bundle = Bundle(tmp_path / entry["bundle"])
        assert bundle.manifest.method == "svd"
        assert bundle.manifest.fit["basis"] == "context"
        labels += bundle.labels()
    assert labels == Bundle(small_repository / "lm" / "1").labels()
    again = call_cli("shard", small_repository / "lm" / "1", "--shards", 2, "--out", tmp_path)
    assert again.returncode == 1
    assert "--out" in again.stderr


@pytest.mark.slow
def test_given_contexts_are_fitted_on(small_repository, tmp_path):
    sample = Contexts(make_contexts(rows=200, seed=9).contexts)
    (first, _) = export_shards(Bundle(small_repository / "lm" / "1"), 2, tmp_path, sample, threads=1)
    assert first.provenance["contexts_rows"] == 200


@pytest.mark.slow
def test_shards_of_a_bundle_of_cosines_are_of_cosines(tmp_path):
    dense, contexts = normalize_layer(make_dense(), make_contexts())
    whole = make_head(tmp_path, dense, contexts, method="full", options={}, cosine=True)
    (first, _) = export_shards(Bundle(whole.folder), 2, tmp_path / "shards", make_contexts(seed=9), threads=1)
    rows = Bundle(tmp_path / "shards" / first.name / "1").tensors(CALIBRATION_FILE)["contexts"]
    assert first.provenance["cosine"] is True
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)


@pytest.mark.slow
def test_heads_that_are_their_own_reference_are_refused(tmp_path):
    method, options = next(form for form in adaptive.FORMS.values() if form[0] == "dsoftmax")
    head = adaptive.make(tmp_path, method, options)
    with pytest.raises(BadInput, match="all classes together"):
        export_shards(Bundle(head.folder), 2, tmp_path / "shards")


def test_shards_of_a_cut_that_did_not_end_are_named_before_anything_is_fitted(tmp_path):
    whole = make_head(tmp_path, make_dense(), method="full", options={})
    left = tmp_path / "shards" / f"{Bundle(whole.folder).manifest.name}-1-of-2" / "1"
    left.mkdir(parents=True)
    with pytest.raises(VersionExists, match="did not end"):
        export_shards(Bundle(whole.folder), 2, tmp_path / "shards", threads=1)
    assert list((tmp_path / "shards").iterdir()) == [left.parent]


@pytest.mark.slow
def test_sets_of_the_export_are_those_of_all_shards_and_of_none_alone(tmp_path):
    sets = {"odd": np.arange(1, CLASSES, 2), "low": np.arange(5)}
    whole, contexts = make_head(tmp_path, make_dense(), method="full", options={}, sets=sets), make_contexts().contexts
    shards = export_shards(Bundle(whole.folder), 2, tmp_path / "shards", threads=1)
    assert not any(list_set_names(tmp_path / "shards" / shard.name / "1" / SETS_FOLDER) for shard in shards)
    head = ShardedHead.open(tmp_path / "shards", threads=1)
    for name in sets:
        expected = whole.topk(contexts[:2], 9, within=name)
        assert np.array_equal(head.topk(contexts[:2], 9, within=name).ids, expected.ids)
