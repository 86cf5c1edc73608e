"""The whole grid goes on from disk, and says what failed, what is absent and what is left."""

import pytest

from benchmarks.common.runs import Store
from benchmarks.contenders.dense.numpy_dense import NumpyDense
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.reports import grid, page
from benchmarks.sweep.harness import Harness

pytestmark = pytest.mark.slow


class CountingDense(NumpyDense):
    """A dense layer that counts how often it is fitted."""

    name = "counting"
    fits = 0

    def fit(self, dense, contexts):
        type(self).fits += 1
        super().fit(dense, contexts)

    def settings(self):
        return [{"effort": 2}, {"effort": 1}]  # none is dearer than one before: none is left out


def test_other_batches_fit_each_build_once_and_go_on_from_disk(tmp_path, monkeypatch):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    store = Store(tmp_path / "runs")
    monkeypatch.setitem(CONTENDERS, CountingDense.name, CountingDense)
    runs = list(Harness(data, store, rows=60).sweep(CountingDense, {"layout": "rows"}))
    wide = Harness(data, store, rows=60, batches=(1, 8))
    for _ in range(2):
        grid.repeat_runs(wide, runs)
        assert CountingDense.fits == 2
    assert sorted(run.setting["effort"] for run in store.runs() if list(run.spent) == [1, 8]) == [1, 2]
    key = wide.make_key(wide.make_run(CountingDense, {"layout": "rows"}), {"effort": 2})
    (store.folder / f"{key}.json").unlink()
    grid.repeat_runs(wide, runs)
    assert CountingDense.fits == 3


class Failing(NumpyDense):
    """Cannot be fitted while it is broken."""

    name = "failing"
    broken = True

    def fit(self, dense, contexts):
        if self.broken:
            raise ValueError("no index")
        super().fit(dense, contexts)


class Absent(NumpyDense):
    """A contender that needs a package which nobody has."""

    name = "absent"
    needs = ("nothing_of_this_name",)


def run_grid(folder, names, kinds):
    remaining = grid.run_grid(Place(folder), Store(folder / "runs"), folder / "page", 60, names, kinds)
    return (folder / "page" / "benchmarks.md").read_text("utf-8"), remaining


def test_what_failed_what_is_absent_and_what_is_left_is_said(tmp_path, monkeypatch):
    for module in (grid, page):
        monkeypatch.setattr(module, "CONTENDERS", {kind.name: kind for kind in (NumpyDense, Failing, Absent)})
    monkeypatch.setattr(grid, "GRID_OPTIONS", {"synthetic": {"classes": "500", "dim": "8", "rows": "1000"}})
    text, remaining = run_grid(tmp_path, ["synthetic"], ["failing"])
    layouts = len(NumpyDense.grid(None))
    assert [sentence for sentence in remaining if "builds" in sentence] == [
        f"synthetic 500 x 8: dense, numpy, {layouts} of {layouts} builds"
    ]
    assert text.count("failed: ValueError: no index |") == layouts
    assert "| absent | 1 | - | - | - | - | - | - | - | - | - | not run: nothing_of_this_name is not installed |" in text
    monkeypatch.setattr(Failing, "broken", False)
    text, remaining = run_grid(tmp_path, ["synthetic"], ["failing", "dense, numpy"])
    assert "no index" not in text
    assert "| failing (layout " in text
    assert remaining == []
    monkeypatch.setattr(grid, "count_available_threads", lambda: 64)
    _, remaining = run_grid(tmp_path, ["synthetic"], [])
    assert remaining[-1].endswith("other batches by 64 thread(s), 2 of 2 settings")


def test_sets_that_were_not_asked_for_stay_on_the_page(tmp_path, monkeypatch):
    kinds = {NumpyDense.name: NumpyDense, Failing.name: Failing}
    for module in (grid, page):
        monkeypatch.setattr(module, "CONTENDERS", kinds)
    options = {"ptb": {}, "synthetic": {"classes": "500", "dim": "8", "rows": "1000"}}
    monkeypatch.setattr(grid, "GRID_OPTIONS", options)
    both, remaining = run_grid(tmp_path, ["ptb", "synthetic"], [NumpyDense.name])
    assert remaining[0].startswith("ptb: not run: ")
    layouts = len(NumpyDense.grid(None))
    assert f"synthetic 500 x 8: failing, {layouts} of {layouts} builds" in remaining
    for names in (["synthetic"], ["ptb"], []):
        assert run_grid(tmp_path, names, [NumpyDense.name])[0] == both
