"""The page is made of runs, wherever they are."""

import subprocess
import sys

import pytest

from benchmarks.common.runs import Store, read_runs, write_runs
from benchmarks.contenders.dense.numpy_dense import NumpyDense
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.reports.page import collect_runs, fill_build_times, group_runs, name_sets, write_page
from benchmarks.sweep.harness import Harness
from tests.support.runs import make_run

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    return DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))


def test_build_times_are_those_of_one_thread_wherever_the_index_came_from():
    runs = [make_run(0.9, 2, build={"n": 1}, build_seconds=seconds) for seconds in (0.1, 45.0)]
    runs += [make_run(0.9, 2, build={"n": 1}, build_seconds=0.2, threads=2)]
    runs += [make_run(0.9, 2, build={"n": 2}, build_seconds=7.0, threads=2)]  # nobody built it by one
    assert [run.build_seconds for run in fill_build_times(runs)] == [45.0, 45.0, 45.0, 7.0]


def test_the_same_runs_make_the_same_page_wherever_they_are(tmp_path):
    store, empty = Store(tmp_path / "runs"), Store(tmp_path / "none")
    for name, p1 in (("b", 0.7), ("a", 0.8), ("c", 0.9)):
        store.write(name, make_run(p1, 2, setting={"name": name}).model_dump())
    first, again = tmp_path / "first", tmp_path / "again"
    write_page(collect_runs(store), first)
    write_page(collect_runs(empty, first / "runs.jsonl"), again)
    for name in ("benchmarks.md", "runs.jsonl"):
        assert (first / name).read_text("utf-8") == (again / name).read_text("utf-8")


def test_page_says_what_was_not_run_and_shows_pictures(tmp_path, data):
    store = Store(tmp_path / "runs")
    list(Harness(data, store, rows=60).sweep(NumpyDense, {"layout": "rows"}))
    write_page(collect_runs(store), tmp_path)
    text = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "V = 500, d = 8. " in text
    assert "| dense, numpy (layout rows) | 1 |" in text
    for name in CONTENDERS:
        assert name == NumpyDense.name or f"| {name} | 1 | - | - | - | - | - | - | - | - | - | not run |" in text
    for k in (1, 5):
        picture = tmp_path / "pictures" / f"synthetic-p{k}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"pictures/synthetic-p{k}.png" in text


def test_runs_of_an_older_revision_do_not_count(tmp_path, monkeypatch, data):
    store, build = Store(tmp_path / "runs"), {"layout": "rows"}
    harness = Harness(data, store, rows=60)
    list(harness.sweep(NumpyDense, build))
    assert harness.read_run(NumpyDense, build, {}) is not None
    monkeypatch.setattr(NumpyDense, "revision", "2")
    assert harness.read_run(NumpyDense, build, {}) is None
    assert collect_runs(store) == []
    assert [run.revision for run in harness.sweep(NumpyDense, build)] == ["2"]


def test_runs_of_another_format_do_not_count(tmp_path):
    runs = [make_run(0.9, 2), make_run(0.9, 3, version=0)]
    write_runs(tmp_path / "runs.jsonl", runs)
    assert collect_runs(Store(tmp_path / "runs"), tmp_path / "runs.jsonl") == runs[:1]


def test_runs_that_cannot_be_compared_have_sections_of_their_own(tmp_path):
    fields = [{"dataset": "ptb"}, {"dataset": "ptb", "fingerprint": "other"}, {"dataset": "ptb", "machine": "other"}]
    fields += [{"dataset": "smollm2, shipped"}, {"dataset": "ptb", "setting": {"n": 2}}]
    runs = [make_run(0.9, 2, contender="shortlist svd", **changes) for changes in fields]
    assert [(one.kind, len(one.runs)) for one in group_runs(runs)] == [
        ("smollm2", 1), ("ptb", 2), ("ptb", 1), ("ptb", 1),
    ]  # fmt: skip
    assert [len(some) for some in name_sets(group_runs(runs)).values()] == [1, 2]
    write_page(runs, tmp_path)
    names = sorted(path.name for path in (tmp_path / "pictures").glob("*-p1.png"))
    assert names == ["ptb-3-p1.png", "ptb-4-p1.png", "ptb-p1.png", "smollm2-p1.png"]
    assert (tmp_path / "benchmarks.md").read_text("utf-8").count("## ptb") == 3


def test_a_run_made_again_takes_the_place_of_that_in_the_file(tmp_path):
    store, file = Store(tmp_path / "runs"), tmp_path / "runs.jsonl"
    write_runs(file, [make_run(0.9, 2), make_run(0.9, 3, threads=2)])
    store.write("one", make_run(0.9, 5).model_dump())
    assert sorted(run.spent[1].speedup for run in collect_runs(store, file)) == [3, 5]


def test_failures_are_on_the_page_and_not_in_its_runs(tmp_path):
    write_page([make_run(0.9, 2), make_run(1, 1, contender="bad", error="failed: no index")], tmp_path)
    assert "failed: no index" in (tmp_path / "benchmarks.md").read_text("utf-8")
    assert len(read_runs(tmp_path / "runs.jsonl")) == 1


def run_command(*arguments):
    command = [sys.executable, "-m", "benchmarks.reports", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_makes_a_page_of_nothing_and_names_a_missing_file(tmp_path):
    assert run_command("--cache", tmp_path).returncode == 0
    assert "No run yet." in (tmp_path / "page" / "benchmarks.md").read_text("utf-8")
    process = run_command("--cache", tmp_path, "--runs", tmp_path / "none.jsonl")
    assert process.returncode == 1
    assert process.stderr.startswith("benchmarks.reports: there is no file")
    assert process.stderr.count("\n") == 1
