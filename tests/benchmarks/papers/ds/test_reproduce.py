"""The page of Doubly Sparse Softmax is made of trainings on disk."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.ds.softmax import DSOptions

from benchmarks.papers.ds import reproduce, runs, tables
from benchmarks.papers.ds.pictures import draw_copies, draw_memory
from benchmarks.papers.ds.runs import (
    DENSE_TRAINING,
    MITOSIS,
    Text,
    load_complete_heads,
    measure_accuracy,
    target_speedup,
    train_or_load,
)
from benchmarks.papers.ds.times import make_wall_table
from tests.support.layers import CLASSES, make_contexts, make_dense

pytestmark = pytest.mark.slow

QUICK = replace(MITOSIS, experts=4, rounds=1, tuning_rounds=1, round_steps=30, learning_rate=0.02, lasso=0.02)


@pytest.fixture(scope="module")
def text():
    dense = make_dense()
    parts = []
    for seed, count in ((1, 1500), (2, 300), (3, 400)):
        rows = make_contexts(1500 + count, seed=1).contexts[-count:] if seed > 1 else make_contexts(1500).contexts
        parts.append(Contexts(rows, (rows @ dense.weight.T).argmax(axis=1)))
    counts = np.bincount(parts[0].targets, minlength=CLASSES)
    return Text(dense, *parts, tuple(f"word{i}" for i in range(CLASSES)), tuple(counts.tolist()))


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    """DS-4 named as the page wants it, and dense retrained."""
    place = tmp_path_factory.mktemp("heads")
    quiet = lambda stage, done, total: None  # noqa: E731
    train_or_load("ds-64-0.001", text, QUICK, DSOptions(), place, quiet)
    once = replace(DENSE_TRAINING, final_rounds=1, tuning_rounds=1, round_steps=5)
    train_or_load("dense-0.001", text, once, DSOptions(), place, quiet)
    return place


def test_what_was_trained_is_not_trained_again(text, folder):
    def refuse(stage, done, total):
        raise AssertionError(stage)

    again = train_or_load("ds-64-0.001", text, QUICK, DSOptions(), folder, refuse)
    assert (again.experts, again.rate, again.lacks_constraint) == (4, 0.001, False)
    assert not list(folder.glob("*.state"))


def test_table_holds_every_head_beside_dense_retrained(text, folder):
    heads = reproduce.sort_heads(text, load_complete_heads(text, folder))
    table, rows = tables.make_table_1(text, heads)
    assert [row.name.partition(",")[0] for row in rows] == ["dense", "dense retrained", "DS-4", "DS-4 in int8"]
    last = rows[-1]
    module = heads[-1].module
    expected = measure_accuracy(module, text.test)
    np.testing.assert_allclose(last.hits.mean(axis=0), [expected[k] for k in (1, 5, 10)])
    assert f"{last.hits[:, 0].mean():.4f}" in table
    assert rows[0].hits[:, 0].all()
    gap = last.hits[:, 0].mean() - rows[1].hits[:, 0].mean()
    assert f"{gap:+.4f} +- " in table
    assert last.copies == len(module.ids) / CLASSES


def test_judgement_says_what_was_reached(text, folder):
    _, rows = tables.make_table_1(text, reproduce.sort_heads(text, load_complete_heads(text, folder)))
    renamed_rows = [replace(row, name=row.name.replace("DS-4", "DS-64")) for row in rows]
    lines = reproduce.describe_verdict(renamed_rows).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("- DS-64 in int8, each row rounded: top-1 ")
    assert f"DS-64: {rows[-1].fewer:.1f} times fewer (target 16)" in lines[1]


def test_pictures_and_wall_times(text, folder, tmp_path):
    head = load_complete_heads(text, folder)[-1]
    draw_memory(head.history, tmp_path / "memory.png")
    draw_copies(head.module, np.array(text.counts), tmp_path / "copies.png")
    for name in ("memory", "copies"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    lines = make_wall_table(text, [head], tmp_path).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == [
            "dense, onnxruntime", "DS-4, Head.topk", "DS-4 in int8, Head.topk", "DS-4, alone, without checks",
        "DS-4 in int8, alone, without checks", "dense, onnxruntime", "DS-4, Head.topk", "DS-4 in int8, Head.topk",
    ]  # fmt: skip
    assert "expert" in reproduce.list_smallest_words(text, head)
    assert "peak memory of weights" in tables.format_table_d1(head)


def test_heads_by_lassos_alone_stand_beside_those_with_evidence(text, folder, tmp_path):
    quiet = lambda stage, done, total: None  # noqa: E731
    train_or_load("ds-4-0.001", text, replace(QUICK, evidence=False), DSOptions(), tmp_path, quiet)
    heads = reproduce.sort_heads(text, load_complete_heads(text, folder))
    section = reproduce.make_lasso_section(text, heads, load_complete_heads(text, tmp_path))
    rows = [line.split(" | ") for line in section.splitlines() if " | " in line]
    assert [row[0] for row in rows[1:4]] == ["| dense retrained", "| DS-4, evidence", "| DS-4, lassos alone"]
    assert {len(row) for row in rows[:4]} == {9}
    evidence = tables.make_table_1(text, heads)[1][-2]
    assert rows[2][1:4] == [f"{share:.4f}" for share in evidence.hits.mean(axis=0)]
    assert rows[3][-1].startswith(("+", "-"))


def test_heads_by_lassos_stay_apart_from_those_of_table_1(text, tmp_path, monkeypatch):
    quick = replace(QUICK, evidence=False, experts=2, tuning_rate=0.001)
    monkeypatch.setattr(runs, "LASSO_MITOSIS", quick)
    head = runs.Runs(text, tmp_path / runs.FOLDER, lambda stage, done, total: None).ds_by_lassos(2)
    assert (head.label, head.rate) == ("DS-2", 0.001)
    assert [path.parent.name for path in tmp_path.rglob("*.json")] == [runs.LASSO_FOLDER]


def test_lassos_alone_train_without_evidence():
    assert not runs.LASSO_MITOSIS.evidence
    assert runs.LASSO_MITOSIS.lasso > 0


def test_fewer_experts_are_asked_for_less():
    speedups = [target_speedup(experts, 17.0) for experts in (2, 4, 8, 16, 32, 64)]
    np.testing.assert_allclose(np.divide(speedups[1:], speedups[:-1]), speedups[0])
    assert speedups[-1] == pytest.approx(17.0)
