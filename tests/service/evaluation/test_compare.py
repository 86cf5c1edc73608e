"""`shortlist diff`: two heads of one layer side by side."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from shortlist.bundle.names import Names
from shortlist.core.results import TopK
from shortlist.errors import BadInput
from shortlist.evaluation.compare import compare_heads, mark_common_classes, measure_agreement

from tests.support.layers import CLASSES, DIM, call_cli, logprobs_of, make_contexts, make_dense, make_head, run_cli

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=50, seed=8).contexts


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """A dense head, and previews so narrow that they miss some of the best."""
    folder, dense = tmp_path_factory.mktemp("heads"), make_dense()
    exact = make_head(folder / "exact", dense, method="full", options={})
    return exact, make_head(folder / "narrow", dense, options={"basis": "context", "width": "6", "full_view": "20"})


def test_agreement_overlap_and_order(heads):
    exact, narrow = heads
    result = compare_heads(exact, narrow, ROWS, 7)
    true = np.argsort(-logprobs_of(make_dense(), ROWS), axis=1, kind="stable")[:, :10]
    for depth in (1, 5, 7, 10):
        narrow_ids = narrow.topk_by_plan(ROWS, depth).ids
        hits = [len(set(one[:depth]) & set(other)) for one, other in zip(true, narrow_ids, strict=True)]
        assert result.agreement[depth].mean == pytest.approx(np.mean(hits) / depth)
    narrow_ids = narrow.topk_by_plan(ROWS, 7).ids
    overlaps = [len(set(one[:7]) & set(other)) for one, other in zip(true, narrow_ids, strict=True)]
    assert result.overlap == pytest.approx(np.mean(overlaps))
    assert result.same_set == pytest.approx(np.mean(np.array(overlaps) == 7))
    assert result.same_order == pytest.approx((true[:, :7] == narrow_ids).all(axis=1).mean())
    assert 0 < result.same_order < 1


def test_logprob_differences_are_of_classes_in_both(heads):
    exact, narrow = heads
    result = compare_heads(exact, narrow, ROWS, 5)
    top, true = narrow.topk_by_plan(ROWS, 5), logprobs_of(make_dense(), ROWS)
    best = np.argsort(-true, axis=1, kind="stable")[:, :5]
    changes = [
        top.logprobs[row, place] - true[row, one]
        for row in range(len(ROWS))
        for place, one in enumerate(top.ids[row])
        if one in best[row]
    ]
    assert result.logprob_difference["mean"] == pytest.approx(np.abs(changes).mean(), abs=1e-5)
    assert result.logprob_difference["max"] == pytest.approx(np.abs(changes).max(), abs=1e-5)
    assert result.logprob_shift == pytest.approx(np.mean(changes), abs=1e-5)


def test_a_head_and_itself(heads):
    result = compare_heads(heads[1], heads[1], ROWS)
    assert (result.same_set, result.same_order, result.overlap, result.differing) == (1, 1, 5, [])
    assert result.logprob_difference["max"] == 0


def test_settings_side_by_side(heads):
    exact, narrow = heads
    result = compare_heads(exact, narrow, ROWS)
    assert result.settings["method"] == ("full", "svd")
    assert result.settings["fit.width"] == (None, 6)
    assert result.settings["quality.p_at_1"] == (exact.manifest.quality.p_at_1, narrow.manifest.quality.p_at_1)
    assert {"method", "plan", "fit.width"} <= set(result.differing)
    assert not {"reference", "provenance.weights_sha256"} & set(result.differing)
    assert result.candidates[0]["mean"] == CLASSES > result.candidates[1]["mean"]


def test_figures_by_kind_and_by_k_stand_side_by_side(heads, tmp_path):
    """As one value each they were cut off, so that nobody saw what differed."""
    contexts = make_contexts()
    documents, kinds = np.arange(len(contexts.contexts), dtype=np.int32) // 10, {"news": [36, 38], "code": [37, 39]}
    contexts = replace(contexts, documents=documents, kinds=kinds)
    other = make_head(tmp_path, make_dense(), contexts, options={"basis": "context", "width": "6"}, at=(3,))
    settings = compare_heads(heads[1], other, ROWS).settings
    quality = other.manifest.quality
    assert settings["quality.p_at.3"] == (None, quality.p_at[3])
    assert settings["quality.kinds.news.p_at_1"] == (None, quality.kinds["news"].p_at_1)
    lines = call_cli("diff", heads[1].folder, other.folder).stdout.splitlines()
    places = {line.index(" - ") for line in lines if line.startswith("* quality.kinds.")}
    assert places == {lines[lines.index("") + 1].index("first") - 1}


def test_other_labels_are_counted(tmp_path):
    names = [f"word {i}" for i in range(CLASSES)]
    dense, full = make_dense(), {"method": "full", "options": {}}
    first = make_head(tmp_path / "first", dense, labels=names, **full)
    second = make_head(tmp_path / "second", dense, labels=[*names[:-2], "a", "b"], **full)
    bare = make_head(tmp_path / "bare", dense, **full)
    assert compare_heads(first, second, ROWS).relabelled == 2
    assert compare_heads(first, bare, ROWS).relabelled is None


def test_classes_are_matched_by_name_where_both_heads_have_names(tmp_path):
    """As after `compact --renumber`: the first class is gone, one came, and all others have another id."""
    names, full = [f"item-{i}" for i in range(CLASSES + 1)], {"method": "full", "options": {}}
    dense = make_dense()
    weight = np.concatenate([dense.weight[1:], np.full((2, DIM), 1e-3, np.float32)])
    first = make_head(tmp_path / "first", dense, names=Names.make(names[:-1]), **full)
    later = Names.make([*names[1:], "new"])
    second = make_head(tmp_path / "second", replace(dense, weight=weight), names=later, **full)
    rows = ROWS[logprobs_of(dense, ROWS)[:, 0] < -20]
    result = compare_heads(first, second, rows)
    assert len(rows) > 10
    assert (result.only_first, result.only_second, result.moved) == (1, 2, CLASSES - 1)
    assert (result.agreement[1].mean, result.same_order) == (1, 1)
    assert result.logprob_difference["max"] < 1e-3
    lines = call_cli("diff", first.folder, second.folder).stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("names "))
    assert "1 in the first alone, 2 in the second alone, 299 with another id" in line


def test_heads_of_other_layers_are_refused(heads, tmp_path):
    full = {"method": "full", "options": {}}
    other = make_head(tmp_path, make_dense(classes=CLASSES + 1), **full)
    wider = make_head(tmp_path / "wider", make_dense(dim=DIM + 1), make_contexts(dim=DIM + 1), **full)
    with pytest.raises(BadInput, match=rf"V = {CLASSES}, .* V = {CLASSES + 1}"):
        compare_heads(heads[0], other, ROWS)
    with pytest.raises(BadInput, match=rf"d = {DIM} .* d = {DIM + 1}"):
        compare_heads(heads[0], wider, ROWS)


@pytest.mark.parametrize(
    ("contexts", "k", "sentence"),
    [(ROWS[:, 1:], 5, "contexts have shape"), (ROWS[:0], 5, "no rows"), (ROWS, 0, "k is 0"), (ROWS, 301, "k is 301")],
)
def test_bad_input(heads, contexts, k, sentence):
    with pytest.raises(BadInput, match=sentence):
        compare_heads(*heads, contexts, k)


def test_few_classes(tmp_path):
    head = make_head(tmp_path, make_dense(classes=3), method="full", options={})
    assert list(compare_heads(head, head, ROWS, 2).agreement) == [1, 2]


def top_of(ids):
    shape = np.shape(ids)
    return TopK(np.array(ids, np.int64), np.zeros(shape, np.float32), np.zeros(len(ids), np.int32), "exact")


lists = st.lists(st.permutations(range(6)), min_size=1, max_size=8)


@given(lists, st.integers(1, 6))
def test_agreement_is_the_same_both_ways_and_whole_at_full_depth(rows, depth):
    ids = np.array(rows)[:, :depth]
    first, second = top_of(ids), top_of(ids[::-1])
    assert measure_agreement(first, second).mean == pytest.approx(measure_agreement(second, first).mean)
    assert measure_agreement(first, first).mean == 1
    if depth == 6:
        assert measure_agreement(first, second).mean == 1


def test_missing_classes_agree_with_nothing():
    assert mark_common_classes(np.array([[3, -1]]), np.array([[3, -1]])).tolist() == [[True, False]]
    assert measure_agreement(top_of([[3, -1]]), top_of([[3, -1]])).mean == 1


def test_command_prints_a_table(heads):
    process = run_cli("diff", heads[0].folder, heads[1].folder, "-k", 3)
    assert (process.returncode, process.stderr) == (0, "")
    lines = process.stdout.splitlines()
    assert "held out by the export of" in lines[0]
    assert any(line.startswith("agreement at 3 ") for line in lines)
    assert any(line.split() == ["*", "method", "full", "svd"] for line in lines)
    assert any(line.split() == ["reference", "dense", "dense"] for line in lines)
    assert any(line.split() == ["*", "fit.width", "-", "6"] for line in lines)


def test_command_prints_json_on_contexts_of_a_file(heads, tmp_path):
    save_file({"contexts": ROWS}, tmp_path / "x.safetensors")
    folders = [head.folder for head in heads]
    process = call_cli("diff", *folders, "--contexts", tmp_path / "x.safetensors", "--json")
    result = compare_heads(*heads, ROWS)
    assert json.loads(process.stdout) == json.loads(result.model_dump_json())


def test_command_compares_as_many_distinct_rows_as_are_asked_for(heads, tmp_path):
    save_file({"contexts": np.concatenate([ROWS, ROWS])}, tmp_path / "x.safetensors")
    arguments = [*(head.folder for head in heads), "--contexts", tmp_path / "x.safetensors", "--json"]
    few, other, all_rows = (
        json.loads(call_cli("diff", *arguments, "--rows", *options).stdout)
        for options in ((9,), (9, "--seed", 1), (2 * len(ROWS),))
    )
    assert (few["rows"], other["rows"], all_rows["rows"]) == (9, 9, len(ROWS))
    assert few["logprob_difference"] != other["logprob_difference"]
    assert all_rows["overlap"] == pytest.approx(compare_heads(*heads, ROWS).overlap)


def test_command_refuses_in_one_line(heads, small_repository, tmp_path):
    other = make_head(tmp_path, make_dense(classes=20), method="full", options={})
    for arguments, words in (
        ((heads[0].folder, other.folder), "give two heads over the same classes"),
        ((heads[0].folder, tmp_path / "none" / "1"), "no bundle"),
        ((heads[0].folder, heads[1].folder, "--contexts", tmp_path / "none.npy"), "no file"),
        ((heads[0].folder, heads[1].folder, "-k", 301), "k is 301"),
    ):
        process = call_cli("diff", *arguments)
        assert (process.returncode, len(process.stderr.splitlines())) == (1, 1), process.stderr
        assert words in process.stderr
