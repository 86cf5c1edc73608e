"""A head in shards answers as the whole head does."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, write_set
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.fleet.shards.shard_list import SHARDS_FILE
from shortlist.fleet.shards.sharded_head import ShardedHead
from shortlist_exporter.export.shard import export_shards
from shortlist_exporter.graphs import builder
from shortlist_exporter.inputs.sources import Dense

from tests.support.layers import make_contexts, make_dense, make_head

CLASSES, DIM, ROWS = 307, 16, 10_000
CONTEXTS = make_contexts(rows=ROWS, dim=DIM, seed=11).contexts
RNG = np.random.default_rng(4)
ALLOW = [RNG.choice(CLASSES, 40, replace=False).tolist(), [5, 300, 306]]
QUESTIONS = {
    "plain": {},
    "allow": {"allow": np.array(ALLOW[0])},
    "allow few": {"allow": ALLOW[1]},
    "ban": {"ban": RNG.choice(CLASSES, 150, replace=False)},
    "bias": {"bias": {3: 2.5, 150: -4.0, 306: 6.0}},
    "all": {"allow": np.array(ALLOW[0]), "ban": np.array(ALLOW[0][:10]), "bias": {ALLOW[0][20]: 3.0, 2: 9.0}},
}


def make_tied_layer():
    """Every class of the second half equals one of the first; two rows are no classes; there is a bias."""
    layer = make_dense(CLASSES, DIM)
    half = CLASSES // 2
    layer.weight[half : 2 * half] = layer.weight[:half]
    bias = np.linspace(-1, 1, CLASSES).astype(np.float32)
    bias[half : 2 * half] = bias[:half]
    return Dense(layer.weight, bias, 0.8, 20.0, np.array([7, 250]))


@pytest.fixture(scope="module", params=["full", "svd"])
def whole(request, tmp_path_factory):
    options = {"full": {}, "svd": {"basis": "context", "width": "8", "full_view": "30"}}[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(builder, "INLINE_BYTES", 128)  # weights in files of their own, as larger layers have them
        yield make_head(folder, make_tied_layer(), make_contexts(dim=DIM), method=request.param, options=options)


@pytest.fixture(scope="module", params=[1, 2, 3, 8])
def shard_head(request, whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("shards")
    export_shards(Bundle(whole.folder), request.param, out, threads=1)
    return ShardedHead.open(out, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_exact_answers_are_those_of_the_whole_head(whole, shard_head, question):
    expected = whole.topk(CONTEXTS, 5, exact=True, **QUESTIONS[question])
    answers = shard_head.topk(CONTEXTS, 5, exact=True, **QUESTIONS[question])
    assert (answers.ids != expected.ids).any(axis=1).sum() == 0
    finite = np.isfinite(expected.logprobs)
    assert np.array_equal(finite, np.isfinite(answers.logprobs))
    assert np.abs(answers.logprobs[finite] - expected.logprobs[finite]).max() < 1e-5
    assert answers.normalizer == expected.normalizer == "exact"


@pytest.mark.slow
def test_k_may_be_larger_than_a_shard(whole, shard_head):
    expected = whole.topk(CONTEXTS[:50], CLASSES - 2, exact=True)
    answers = shard_head.topk(CONTEXTS[:50], CLASSES - 2, exact=True)
    assert np.array_equal(answers.ids, expected.ids)


@pytest.mark.slow
def test_approximate_answers_find_at_least_what_each_shard_finds(whole, shard_head):
    expected = whole.topk(CONTEXTS, 1, exact=True)
    plain = shard_head.topk(CONTEXTS, 1)
    share = (plain.logprobs[:, 0] > expected.logprobs[:, 0] - 0.5).mean()
    assert (plain.ids == expected.ids).mean() > 0.95
    assert share > 0.95


@pytest.mark.slow
def test_named_sets_are_those_of_the_whole_layer(tmp_path):
    whole = make_head(tmp_path, make_dense(CLASSES, DIM), make_contexts(dim=DIM), method="full", options={})
    for name, ids in {"even": range(0, CLASSES, 2), "low": range(90)}.items():
        write_set(whole.folder.parent / SETS_FOLDER, name, pack_set(ids))
    export_shards(Bundle(whole.folder), 3, tmp_path / "shards", threads=1)
    shard_head = ShardedHead.open(tmp_path / "shards", threads=1)
    for sets in ({"within": "even"}, {"without": ["even", "low"]}, {"within": "low", "without": "even", "ban": [1, 3]}):
        expected = whole.topk(CONTEXTS[:20], 60, **sets)
        assert np.array_equal(shard_head.topk(CONTEXTS[:20], 60, **sets).ids, expected.ids)
    with pytest.raises(shortlist.errors.NotFound, match="no set 'odd'"):
        shard_head.topk(CONTEXTS[:1], 1, within="odd")
    with pytest.raises(shortlist.errors.BadInput, match="has no sets of classes here"):
        ShardedHead(shard_head.manifest, shard_head.heads).topk(CONTEXTS[:1], 1, within="even")


@pytest.mark.slow
def test_names_are_those_of_the_whole_layer(tmp_path):
    names = Names.make([f"item-{number}" for number in range(CLASSES)])
    layer, contexts = make_dense(CLASSES, DIM), make_contexts(dim=DIM)
    whole = make_head(tmp_path, layer, contexts, method="full", options={}, names=names)
    export_shards(Bundle(whole.folder), 3, tmp_path / "shards", threads=1)
    shard_head = ShardedHead.open(tmp_path / "shards", threads=1)
    for lists in ({}, {"ban": ["item-3", "nobody"]}, {"allow": [["item-3", "item-300"], ["item-150"]]}):
        expected = whole.topk(CONTEXTS[:2], 5, names=True, **lists)
        assert shard_head.topk(CONTEXTS[:2], 5, names=True, **lists).names.tolist() == expected.names.tolist()
    with pytest.raises(shortlist.errors.BadInput, match="exported without names"):
        ShardedHead(shard_head.manifest, shard_head.heads).topk(CONTEXTS[:1], 1, names=True)


def test_what_is_there_no_more_is_said(tmp_path):
    with pytest.raises(shortlist.errors.NotFound, match="shortlist shard"):
        ShardedHead.open(str(tmp_path))
    (tmp_path / SHARDS_FILE).write_text('{"name": "lm"}')
    with pytest.raises(shortlist.errors.BundleError, match="cut the bundle again"):
        ShardedHead.open(tmp_path)


@pytest.mark.slow
def test_another_bundle_in_the_place_of_a_shard_is_refused(tmp_path):
    whole = make_head(tmp_path, make_dense(40, DIM), make_contexts(dim=DIM), method="full", options={})
    export_shards(Bundle(whole.folder), 2, tmp_path / "shards", threads=1)
    text = (tmp_path / "shards" / SHARDS_FILE).read_text()
    digest = Bundle(whole.folder).manifest.digest
    shard = Bundle(tmp_path / "shards" / "lm-1-of-2" / "1").manifest.digest
    (tmp_path / "shards" / SHARDS_FILE).write_text(text.replace(shard, digest))
    with pytest.raises(shortlist.errors.BundleError, match="not the shard"):
        ShardedHead.open(tmp_path / "shards")
