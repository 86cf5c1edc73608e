"""The page is made from runs on disk."""

from benchmarks.common.runs import Run, Share, Spent, Store, keep, kept, machine
from benchmarks.contenders.dense.numpy_dense import NumpyDense
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.reports import grid, page
from benchmarks.reports.tables import front, interval, short, table
from benchmarks.sweep.harness import Harness


def run_of(p1, speedup, **extra):
    spent = Spent(mean=10, median=9, p99=20, dense_mean=10 * speedup, dense_median=9, speedup=speedup, slow_share=0)
    precision = {k: Share(value=p1, low=p1 - 0.01, high=min(1, p1 + 0.01)) for k in (1, 5, 10)}
    fields = {"dataset": "d", "fingerprint": "f", "contender": "c", "build": {}, "threads": 1} | extra
    return Run(precision=precision, spent={1: spent}, **fields)


def test_front_keeps_what_nothing_beats_in_both():
    runs = [run_of(0.9, 10), run_of(0.99, 5), run_of(0.98, 4), run_of(1.0, 1), run_of(0.8, 10)]
    assert [run.precision[1].value for run in front(runs)] == [0.9, 0.99, 1.0]


def test_table_has_a_line_for_a_failure():
    lines = table(
        [run_of(0.9912, 3, contender="good", rows=2048), run_of(1, 1, contender="bad", error="failed: no index")]
    )
    assert "| good | 1 | .9912 (.981-1.000)" in lines
    assert "| 20 | 9 | 20 | 3.00 |" in lines, "all of 2,048 calls of 10 us, in ms; median, p99 and speed-up"
    assert "| bad | 1 | - | - | - | - | - | - | - | - | - | failed: no index |" in lines


def test_remarks_on_slow_calls_are_those_of_the_table_s_batch():
    run = run_of(1, 1, flags=["remembers answers", "95% of calls as slow as dense"])
    run.spent[8] = run.spent[1].model_copy(update={"slow_share": 0.5})
    assert "| remembers answers |" in table([run])
    assert "| remembers answers; 50% of calls as slow as dense |" in table([run], 8)


def test_build_times_are_those_of_one_thread_wherever_the_index_came_from():
    took = [run_of(0.9, 2, build={"n": 1}, build_seconds=seconds) for seconds in (0.1, 45.0)]
    took += [run_of(0.9, 2, build={"n": 1}, build_seconds=0.2, threads=2)]
    took += [run_of(0.9, 2, build={"n": 2}, build_seconds=7.0, threads=2)]  # nobody built it by one
    assert [run.build_seconds for run in page.as_built(took)] == [45.0, 45.0, 45.0, 7.0]


def test_a_contender_that_reaches_no_promise_shows_its_most_precise_run():
    runs = [run_of(p1, 9, contender="poor", setting={"ef": p1}) for p1 in (0.3, 0.8, 0.7)]
    runs += [run_of(0.8, 4, contender="poor", setting={"ef": 100})]
    runs += [run_of(0.96, 5, contender="fair"), run_of(0.2, 1, contender="fair", setting={"ef": 1})]
    assert [(run.contender, run.setting) for run in short(runs)] == [("poor", {"ef": 0.8})]


def test_the_same_runs_make_the_same_page_wherever_they_were_found(tmp_path):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    store, empty = Store(tmp_path / "runs"), Store(tmp_path / "none")
    fields = {"fingerprint": data.fingerprint, "contender": NumpyDense.name, "machine": machine()}
    for name, p1 in (("b", 0.7), ("a", 0.8), ("c", 0.9)):
        store.write(name, run_of(p1, 2, setting={"name": name}, **fields).model_dump())
    first = page.done(store, data, tmp_path)
    page.write_page(["synthetic"], {"synthetic": data}, store, tmp_path)
    assert page.done(store, data, tmp_path) == page.done(empty, data, tmp_path) == first


def test_no_precision_is_a_dash():
    assert interval(None) == "-"


def test_page_says_what_was_not_run_and_shows_pictures(tmp_path):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    store = Store(tmp_path / "runs")
    list(Harness(data, store, rows=60).sweep(NumpyDense, {"layout": "rows"}))
    text = page.section("synthetic", data, page.with_missing(data, page.done(store, data, tmp_path)), tmp_path)
    assert "| dense, numpy (layout rows) | 1 |" in text
    for name in CONTENDERS:
        assert name == NumpyDense.name or f"| {name} | 1 | - | - | - | - | - | - | - | - | - | not run |" in text
    for k in (1, 5):
        picture = tmp_path / "pictures" / f"synthetic-p{k}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"pictures/synthetic-p{k}.png" in text


def test_runs_of_an_older_revision_do_not_count(tmp_path, monkeypatch):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    store, build = Store(tmp_path / "runs"), {"layout": "rows"}
    harness = Harness(data, store, rows=60)
    list(harness.sweep(NumpyDense, build))
    assert harness.stored(NumpyDense, build, {}) is not None
    monkeypatch.setattr(NumpyDense, "revision", "2")
    assert harness.stored(NumpyDense, build, {}) is None
    assert page.done(store, data, tmp_path) == []
    assert [run.revision for run in harness.sweep(NumpyDense, build)] == ["2"]


def test_a_page_made_elsewhere_keeps_what_this_processor_ran(tmp_path, monkeypatch):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    full_store, empty = Store(tmp_path / "runs"), Store(tmp_path / "none")
    runs = list(Harness(data, full_store, rows=60).sweep(NumpyDense, {"layout": "rows"}))
    page.write_page(["synthetic"], {"synthetic": data}, full_store, tmp_path)
    assert page.done(empty, data, tmp_path) == runs
    page.write_page(["synthetic"], {"synthetic": data}, empty, tmp_path)
    assert page.done(empty, data, tmp_path) == runs
    assert "| dense, numpy (layout rows) | 1 |" in (tmp_path / "benchmarks.md").read_text("utf-8")
    monkeypatch.setattr(page, "machine", lambda: "another processor")
    assert page.done(empty, data, tmp_path) == []
    page.write_page(["synthetic"], {"synthetic": data}, empty, tmp_path)  # which loses nobody else's
    monkeypatch.undo()
    assert page.done(empty, data, tmp_path) == runs


def test_data_sets_keep_their_own_runs(tmp_path):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    fields = {"contender": NumpyDense.name, "machine": machine()}
    runs = [run_of(0.9, 2, fingerprint=name, **fields) for name in (data.fingerprint, "another's")]
    keep(tmp_path / page.KEPT, [*runs, runs[0].model_copy(update={"version": 0})])
    assert page.done(Store(tmp_path / "runs"), data, tmp_path) == runs[:1]
    page.write_page(["synthetic"], {"synthetic": data}, Store(tmp_path / "runs"), tmp_path)
    assert len(kept(tmp_path / page.KEPT)) == 2


def test_a_run_made_again_takes_the_place_of_what_was_kept(tmp_path):
    data = DATASETS["synthetic"](Place(tmp_path, options={"classes": "500", "dim": "8", "rows": "400"}))
    store = Store(tmp_path / "runs")
    fields = {"fingerprint": data.fingerprint, "contender": NumpyDense.name, "machine": machine()}
    keep(tmp_path / page.KEPT, [run_of(0.9, 2, **fields), run_of(0.9, 3, threads=2, **fields)])
    store.write("one", run_of(0.9, 5, **fields).model_dump())
    assert sorted(run.spent[1].speedup for run in page.done(store, data, tmp_path)) == [3, 5]


class Counting(NumpyDense):
    """Counts its fits."""

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
    monkeypatch.setitem(CONTENDERS, Counting.name, Counting)
    runs = list(Harness(data, store, rows=60).sweep(Counting, {"layout": "rows"}))
    wide = Harness(data, store, rows=60, batches=(1, 8))
    for _ in range(2):
        grid.repeated(wide, runs)
        assert Counting.fits == 2
    assert sorted(run.setting["effort"] for run in store.runs() if list(run.spent) == [1, 8]) == [1, 2]
    key = wide.key(wide.run_of(Counting, {"layout": "rows"}), {"effort": 2})
    (store.folder / f"{key}.json").unlink()
    grid.repeated(wide, runs)
    assert Counting.fits == 3


class Failing(NumpyDense):
    """Cannot be fitted while it is broken."""

    name = "failing"
    broken = True

    def fit(self, dense, contexts):
        if self.broken:
            raise ValueError("no index")
        super().fit(dense, contexts)


class Absent(NumpyDense):
    """Needs what nobody has."""

    name = "absent"
    needs = ("nothing_of_this_name",)


def test_the_page_tells_what_failed_what_is_absent_and_what_is_left(tmp_path, monkeypatch):
    for module in (grid, page):
        monkeypatch.setattr(module, "CONTENDERS", {kind.name: kind for kind in (NumpyDense, Failing, Absent)})
    monkeypatch.setattr(grid, "SETS", {"synthetic": {"classes": "500", "dim": "8", "rows": "1000"}})

    def text_of(*kinds):
        grid.run_all(Place(tmp_path), Store(tmp_path / "runs"), tmp_path, 60, ["synthetic"], kinds)
        return (tmp_path / "benchmarks.md").read_text("utf-8")

    text = text_of("failing")
    layouts = len(NumpyDense.grid(None))
    assert f"dense, numpy, {layouts} of {layouts} builds" in text
    assert "failing, " not in text.partition("## ")[0]
    assert text.count("failed: ValueError: no index |") == layouts
    assert "| absent | 1 | - | - | - | - | - | - | - | - | - | not run: nothing_of_this_name is not installed |" in text
    monkeypatch.setattr(Failing, "broken", False)
    text = text_of("failing", "dense, numpy")
    assert "no index" not in text
    assert "| failing (layout " in text
    assert "What is left" not in text
    monkeypatch.setattr(page, "available_threads", lambda: 64)
    text_of()
    assert "other batches by 64 thread(s), 2 of 2 settings" in (tmp_path / "benchmarks.md").read_text("utf-8")


def test_sets_that_were_not_asked_for_stay_as_the_page_has_them(tmp_path, monkeypatch):
    kinds = {NumpyDense.name: NumpyDense, Failing.name: Failing}
    for module in (grid, page):
        monkeypatch.setattr(module, "CONTENDERS", kinds)
    monkeypatch.setattr(grid, "SETS", {"ptb": {}, "synthetic": {"classes": "500", "dim": "8", "rows": "1000"}})

    def text_of(*names):
        grid.run_all(Place(tmp_path), Store(tmp_path / "runs"), tmp_path, 60, names, [NumpyDense.name])
        return (tmp_path / "benchmarks.md").read_text("utf-8")

    both = text_of("ptb", "synthetic")
    assert "## ptb\n\nNot run: " in both
    layouts = len(NumpyDense.grid(None))
    assert f"failing, {layouts} of {layouts} builds" in both.partition("## ptb")[0]
    assert text_of("synthetic") == text_of("ptb") == text_of() == both
    (tmp_path / "benchmarks.md").unlink()
    assert "\n## ptb\n\nNot run.\n\n## synthetic" in text_of("synthetic")
