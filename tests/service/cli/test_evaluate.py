"""`shortlist evaluate` as a user runs it: table, JSON, CSV, warnings, refusals."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from shortlist.evaluation import evaluate
from shortlist.evaluation.statistics import estimate_precision

from tests.support.evaluation import CONTEXTS, SAMPLE, TARGETS
from tests.support.layers import call_cli, contexts_elsewhere, logits_of, make_dense, run_cli

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", CONTEXTS)
    np.save(tmp_path / "y.npy", TARGETS)
    np.save(tmp_path / "far.npy", contexts_elsewhere(SAMPLE.contexts))
    save_file({"contexts": CONTEXTS, "targets": TARGETS}, tmp_path / "both.safetensors")
    return SimpleNamespace(**{path.stem: path for path in tmp_path.iterdir()}, folder=tmp_path)


def test_it_prints_a_table(narrow_head, files):
    process = run_cli("evaluate", narrow_head.folder, "--contexts", files.both, "--rows", 100, "--threads", 1)
    assert (process.returncode, process.stderr) == (0, "")
    result = evaluate(narrow_head, CONTEXTS, TARGETS, rows=100)
    assert f"{result.precision[5].mean:.4f} (" in process.stdout
    assert "rows                         100 distinct" in process.stdout
    for name in ("top-50 coverage", "KL(dense || head)", "Z~/Z", "NLL of targets", "perplexity", "answered by dense"):
        assert name in process.stdout


def test_it_prints_what_each_kind_of_text_gives(narrow_head, files):
    documents = np.repeat(np.arange(3, dtype=np.int32), 50)
    tensors, kinds = {"contexts": CONTEXTS, "documents": documents}, {"prose": [0, 2], "code": [1]}
    save_file(tensors, files.folder / "kinds.safetensors", {"kinds": json.dumps(kinds)})
    arguments = ("evaluate", narrow_head.folder, "--contexts", files.folder / "kinds.safetensors", "--threads", 1)
    figures = json.loads(call_cli(*arguments, "--json").stdout)["kinds"]
    assert {name: depth["rows"] for name, depth in figures.items()} == {"prose": 100, "code": 50}
    assert f"P@1, code                    {figures['code']['precision']['mean']:.4f}" in call_cli(*arguments).stdout
    for metadata in ({"kinds": json.dumps(kinds)}, None):
        save_file(tensors | {"documents": documents[:-1]}, files.folder / "short.safetensors", metadata)
        process = call_cli(*arguments[:3], files.folder / "short.safetensors")
        assert process.returncode == 1
        assert f"documents of {files.folder / 'short.safetensors'} are" in process.stderr
    save_file(tensors, files.folder / "wrong.safetensors", {"kinds": "[1]"})
    process = call_cli("evaluate", narrow_head.folder, "--contexts", files.folder / "wrong.safetensors")
    assert process.returncode == 1
    assert "kinds in the metadata of" in process.stderr


def test_documents_of_the_file_make_intervals_wider(narrow_head, files):
    best, ids = logits_of(make_dense(), CONTEXTS).argmax(axis=1), narrow_head.topk_by_plan(CONTEXTS, 1).ids[:, 0]
    save_file(
        {"contexts": CONTEXTS, "documents": (ids == best) * (1 + np.arange(150) % 9)}, files.folder / "d.safetensors"
    )
    arguments = ("evaluate", narrow_head.folder, "--json", "--threads", 1, "--contexts")
    rows, documents = (
        json.loads(call_cli(*arguments, files.folder / name).stdout) for name in ("x.npy", "d.safetensors")
    )
    assert documents["precision"]["1"]["low"] < rows["precision"]["1"]["low"]


def test_other_k_stand_beside_the_usual_ones(narrow_head, files):
    process = call_cli("evaluate", narrow_head.folder, "--contexts", files.x, "--at", "1,20", "--threads", 1)
    lines = [line.split() for line in process.stdout.splitlines() if line.startswith("P@")]
    assert [words[0] for words in lines] == ["P@1", "P@5", "P@10", "P@20"]
    assert [words[1] for words in lines] == [
        f"{estimate_precision(narrow_head.topk_by_plan(CONTEXTS, k).ids, best_classes(k), k).mean:.4f}"
        for k in (1, 5, 10, 20)
    ]
    assert ["at the export" in " ".join(words) for words in lines] == [True, True, True, False]


def best_classes(k):
    return np.argsort(-logits_of(make_dense(), CONTEXTS), axis=1)[:, :k]


def test_it_prints_json_and_writes_it(narrow_head, files):
    out = files.folder / "figures.json"
    args = ("--contexts", files.x, "--targets", files.y, "--json", "--out", out, "--threads", 1)
    process = call_cli("evaluate", narrow_head.folder, *args)
    assert process.returncode == 0, process.stderr
    content = json.loads(process.stdout)
    assert content == json.loads(out.read_text())
    assert content["head_targets"]["nll"] == pytest.approx(
        evaluate(narrow_head, CONTEXTS, TARGETS).head_targets.nll, rel=1e-4
    )


def test_it_prints_csv(narrow_head, files):
    process = call_cli("evaluate", narrow_head.folder, "--contexts", files.x, "--csv", "--threads", 1)
    lines = dict(line.split(",") for line in process.stdout.splitlines())
    assert lines["figure"] == "value"
    assert float(lines["precision.5.mean"]) == pytest.approx(evaluate(narrow_head, CONTEXTS).precision[5].mean)


def test_csv_quotes_kinds_whose_names_hold_a_comma(narrow_head, files):
    tensors = {"contexts": CONTEXTS, "documents": np.zeros(len(CONTEXTS), np.int32)}
    save_file(tensors, files.folder / "kinds.safetensors", {"kinds": json.dumps({"law, old": [0]})})
    path = files.folder / "kinds.safetensors"
    process = call_cli("evaluate", narrow_head.folder, "--contexts", path, "--csv", "--threads", 1)
    assert dict(csv.reader(process.stdout.splitlines()))["kinds.law, old.rows"] == str(len(CONTEXTS))


def test_it_warns_and_strict_fails(narrow_head, files):
    for flags, code in (([], 0), (["--strict"], 1)):
        process = call_cli("evaluate", narrow_head.folder, "--contexts", files.far, *flags, "--threads", 1)
        assert process.returncode == code
        assert "warning: these contexts are not like those" in process.stderr
        assert len(process.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full is a file of Linux")
def test_figures_that_cannot_be_written_are_printed(narrow_head, files):
    process = call_cli("evaluate", narrow_head.folder, "--contexts", files.x, "--out", "/dev/full", "--rows", 9)
    assert (process.returncode, len(process.stderr.splitlines())) == (1, 1)
    assert "/dev/full cannot be written: No space left on device" in process.stderr
    assert "P@1 " in process.stdout


def test_it_refuses_in_one_line(narrow_head, files):
    def expect_refusal(*args, code=1):
        process = call_cli("evaluate", narrow_head.folder, *args)
        assert process.returncode == code
        assert len(process.stderr.splitlines()) == 1, process.stderr
        return process.stderr

    save_file({"contexts": CONTEXTS}, files.folder / "alone.safetensors")
    assert "no file" in expect_refusal("--contexts", files.folder / "none.npy")
    assert "no tensor 'targets'" in expect_refusal(
        "--contexts", files.x, "--targets", files.folder / "alone.safetensors"
    )
    assert "for 400 contexts" in expect_refusal("--contexts", files.far, "--targets", files.y)
    assert "'-1' is not a whole number from 0" in expect_refusal("--contexts", files.x, "--seed", -1, code=2)
    assert "no folder" in expect_refusal("--contexts", files.x, "--out", files.folder / "none" / "x.json")
    assert "is read, and" in expect_refusal("--contexts", files.x, "--out", files.x)
    assert "is read, and" in expect_refusal("--contexts", files.x, "--targets", files.y, "--out", files.y)
    assert "is a folder" in expect_refusal("--contexts", files.x, "--out", files.folder)


def test_it_helps():
    process = call_cli("evaluate", "--help")
    assert process.returncode == 0
    assert "nats" in process.stdout
