"""The whole grid on every data set: resumable, one JSON a run; `page` writes what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from shortlist.errors import ShortlistError
from shortlist.runtime.threads import count_available_threads
from shortlist_exporter.commands.progress import progress_bar

from benchmarks.common.runs import Run, Store, hash_parts
from benchmarks.contenders.registry import CONTENDERS, Contender
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.sweep.harness import SWEEP_BATCHES, Harness, explain_absence
from benchmarks.sweep.peers import sweep_grids

from .page import collect_runs, select_wide_runs, write_page
from .tables import find_fastest_precise_runs

GRID_OPTIONS: dict[str, dict[str, str]] = {"smollm2": {}, "ptb": {}, "synthetic": {}}  # data set -> its options


def run_grid(
    place: Place, store: Store, folder: Path, rows: int, names: Collection[str], kinds: Collection[str]
) -> list[str]:
    """Sweep the quick contenders of `kinds` on the data sets `names`, then the slow ones.

    Small layers go first, since they are done soon. The page in `folder` is written after each data set, and when
    Ctrl-C ends the sweep. Returns sentences on what is left to run.
    """
    sets, remarks = open_sets(place, names)
    try:
        for quick, data in product((True, False), sorted(sets, key=lambda data: data.dense.weight.size)):
            contenders = [CONTENDERS[kind] for kind in kinds if CONTENDERS[kind].quick == quick]
            if contenders:
                run_set(data, store, rows, contenders)
                write_page(collect_runs(store), folder)
    except KeyboardInterrupt:
        pass
    runs = collect_runs(store)
    write_page(runs, folder)
    return [*remarks, *(sentence for data in sets for sentence in list_remaining(data, runs))]


def open_sets(place: Place, names: Collection[str]) -> tuple[list[DataSet], list[str]]:
    """The data sets that can be had, and a sentence on each of the others."""
    sets: list[DataSet] = []
    remarks: list[str] = []
    for name in names:
        try:
            sets.append(DATASETS[name](replace(place, options=GRID_OPTIONS[name])))
        except ShortlistError as error:
            remarks.append(f"{name}: not run: {error}")
    return sets, remarks


def run_set(data: DataSet, store: Store, rows: int, kinds: Sequence[type[Contender]]) -> None:
    """Batch 1 on one thread for the grid of `kinds`; other batches, and all threads, for each one's front."""
    single = Harness(data, store, threads=1, rows=rows)
    runs = list(sweep_grids(single, kinds))
    for threads in sorted({1, count_available_threads()}):
        repeat_runs(
            Harness(data, store, threads=threads, rows=rows, batches=SWEEP_BATCHES), find_fastest_precise_runs(runs)
        )


def repeat_runs(harness: Harness, runs: Sequence[Run]) -> None:
    """The same contenders and settings by another harness, with a bar; each build is fitted once."""
    builds: dict[str, list[Run]] = {}
    for run in runs:
        builds.setdefault(f"{run.contender} {run.build}", []).append(run)
    with progress_bar("batches") as report:
        for done, some in enumerate(builds.values()):
            report(f"{harness.data.name}, {harness.threads} thread(s): {some[0].contender}"[:60], done, len(builds))
            harness.run_settings(CONTENDERS[some[0].contender], some[0].build, [run.setting for run in some])
        report(harness.data.name, len(builds), len(builds))


def list_remaining(data: DataSet, runs: Sequence[Run]) -> list[str]:
    """Sentences on what of the grid is not done on a data set, where `runs` are done."""
    runs = [run for run in runs if run.fingerprint == data.fingerprint]
    return [*list_unfinished_builds(data, runs), *list_unrepeated_settings(data, runs)]


def list_unfinished_builds(data: DataSet, runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each contender with builds that have no run, though they could."""
    complete_builds = {(run.contender, hash_parts(run.build)) for run in runs}
    for kind in CONTENDERS.values():
        grid = [] if explain_absence(kind) else kind.grid(data.dense)
        if count := sum((kind.name, hash_parts(build)) not in complete_builds for build in grid):
            yield f"{data.name}: {kind.name}, {count} of {len(grid)} builds"


def list_unrepeated_settings(data: DataSet, runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each number of threads by which settings were not run at other batches."""
    labels = {run.label for run in find_fastest_precise_runs(runs)}
    for threads in sorted({1, count_available_threads()}):
        if missing := labels - {run.label for run in select_wide_runs(runs, threads)}:
            yield f"{data.name}: other batches by {threads} thread(s), {len(missing)} of {len(labels)} settings"
