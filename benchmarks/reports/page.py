"""The full page of a benchmark, with every table and picture, made of runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.runs import Run, Store, hash_parts, read_runs, write_runs
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS
from benchmarks.sweep.harness import SWEEP_BATCHES, explain_absence

from .plots import plot_fronts
from .tables import (
    find_fastest_precise_runs,
    find_most_precise_runs,
    find_pareto_front,
    format_levels,
    format_table,
    select_single_row_runs,
    select_usable_runs,
)

PAGE_FILE, RUNS_FILE, PICTURES_FOLDER = "benchmarks.md", "runs.jsonl", "pictures"
SCREEN_CONTENDER = "shortlist l2s"  # has options beyond its paper; each is shown, on a front or not
PICTURED_DEPTHS = (1, 5)  # k of P@k
PAGE_INTRODUCTION = """# Benchmarks: every table

Written by `make bench-page` from the runs below `build/bench/runs`. Rows are distinct, held out by document and in
random order; precision is read off the timed calls, with 95 % intervals over rows; settings dearer than one at under
half of dense's speed are left out; dense is the fastest spelling in ONNX Runtime, timed in the same blocks with the
same threads and batch. Times include a peer's change of basis; an index is built by one thread. Other work may have
kept other cores busy: compare `times dense`, not microseconds, and no small differences. What keeps this honest stands
in `benchmarks/sweep/harness.py`.
"""


@dataclass(frozen=True)
class RunSet:
    """The runs that may be compared: on one data set with the same files (`fingerprint`), on one processor."""

    dataset: str
    fingerprint: str
    machine: str
    runs: list[Run]

    @property
    def kind(self) -> str:
        """The data set's name in the registry, as in `smollm2`."""
        return self.dataset.replace(",", " ").split()[0]


def collect_runs(store: Store, file: Path | None = None) -> list[Run]:
    """The runs in `file` (a JSON value a line) and in `store`, which is the newer one where both have a run.

    Runs of contenders that would make another index today are left out. The order does not depend on where a run was.
    """
    runs = [*(read_runs(file) if file else []), *store.runs()]
    latest = {(run.fingerprint, run.machine, run.request_key): run for run in runs if is_current(run)}
    return [latest[key] for key in sorted(latest)]


def is_current(run: Run) -> bool:
    """Whether the contender would make the same index today."""
    return run.contender not in CONTENDERS or run.revision == CONTENDERS[run.contender].revision


def group_runs(runs: Sequence[Run]) -> list[RunSet]:
    """The runs by data set, its files and processor; data sets in the registry's order, then larger sets first."""
    keys = dict.fromkeys((run.dataset, run.fingerprint, run.machine) for run in runs)
    sets = [RunSet(*key, [run for run in runs if (run.dataset, run.fingerprint, run.machine) == key]) for key in keys]
    order = list(DATASETS)
    return sorted(
        sets, key=lambda one: (order.index(one.kind) if one.kind in order else len(order), one.dataset, -len(one.runs))
    )


def write_page(runs: Sequence[Run], folder: Path) -> None:
    """Write the page, its pictures and the runs that it is made of into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = group_runs(runs)
    kinds = [one.kind for one in sets]
    names = [kind if kind not in kinds[:place] else f"{kind}-{place + 1}" for place, kind in enumerate(kinds)]
    sections = [write_section(one, name, folder) for one, name in zip(sets, names, strict=True)]
    levels = f"\n## Times dense at a given P@1\n\n{format_levels(name_sets(sets))}" if sets else "\nNo run yet.\n"
    (folder / PAGE_FILE).write_text("".join([PAGE_INTRODUCTION, levels, *sections]), "utf-8")
    write_runs(folder / RUNS_FILE, [run for run in runs if not run.error])


def name_sets(sets: Sequence[RunSet]) -> dict[str, list[Run]]:
    """The largest set of runs of each data set, by the data set's name in the registry."""
    largest: dict[str, RunSet] = {}
    for one in sets:
        if one.kind not in largest or len(one.runs) > len(largest[one.kind].runs):
            largest[one.kind] = one
    return {name: one.runs for name, one in largest.items()}


def write_section(one: RunSet, name: str, folder: Path) -> str:
    """The section of a set of runs; draws its pictures into `folder`, their files named after `name`."""
    runs = add_absent_contenders(fill_build_times(one.runs))
    single = select_single_row_runs(runs)
    text = [f"\n## {one.dataset}\n\n{describe_set(one)}\n"]
    for k in PICTURED_DEPTHS if select_usable_runs(single, 1, 1) else ():
        picture = Path(PICTURES_FOLDER) / f"{name}-p{k}.png"
        plot_fronts(select_usable_runs(single, k, 1), folder / picture, k)
        text.append(f"\n![P@{k} against speed-up]({picture})\n")
    text += make_single_row_tables(single)
    chosen_labels = {run.label for run in find_fastest_precise_runs(single)}
    for batch in SWEEP_BATCHES[1:]:
        for threads in sorted({run.threads for run in runs}):
            same = [
                run
                for run in select_usable_runs(select_wide_runs(runs, threads), 1, batch)
                if run.label in chosen_labels
            ]
            ordered = sorted(same, key=lambda run: -run.spent[batch].speedup)
            text.append(f"\n### The same at batch {batch}, {threads} thread(s)\n\n" + format_table(ordered, batch))
    return "".join(text)


def describe_set(one: RunSet) -> str:
    """The layer's shape where runs have it, the processor and the number of runs."""
    shapes = [f"V = {run.classes:,}, d = {run.dim}. " for run in one.runs if run.classes]
    return f"{shapes[0] if shapes else ''}{one.machine}. {len(one.runs):,} runs on data {one.fingerprint}."


def make_single_row_tables(single: Sequence[Run]) -> list[str]:
    """The tables of batch 1 on one thread: front, every contender's best, and all options of the screen."""
    best = [*find_fastest_precise_runs(single), *find_most_precise_runs(single), *(run for run in single if run.error)]
    text = [
        "\n### Pareto front, batch 1, one thread\n\n" + format_table(find_pareto_front(single)),
        "\n### Each contender's fastest at P@1 of .95, .99 and .999, or its most precise\n\n" + format_table(best),
    ]
    screens = [run for run in select_usable_runs(single, 1, 1) if run.contender == SCREEN_CONTENDER]
    if screens:
        ordered = sorted(screens, key=lambda run: -run.spent[1].speedup)
        text.append(f"\n### Every option of {SCREEN_CONTENDER}, batch 1, one thread\n\n" + format_table(ordered))
    return text


def select_wide_runs(runs: Sequence[Run], threads: int) -> list[Run]:
    """Runs at several batches with so many threads."""
    return [run for run in runs if len(run.spent) > 1 and run.threads == threads]


def add_absent_contenders(runs: Sequence[Run]) -> list[Run]:
    """The runs of a set, and a run with an error that says why for every contender that has none."""
    missing = [name for name in CONTENDERS if not any(run.contender == name for run in runs)]
    blank = Run(dataset=runs[0].dataset, fingerprint=runs[0].fingerprint, contender="", build={}, threads=1)
    why = {name: explain_absence(CONTENDERS[name]) or "not run" for name in missing}
    return [*runs, *(blank.model_copy(update={"contender": name, "error": error}) for name, error in why.items())]


def fill_build_times(runs: Sequence[Run]) -> list[Run]:
    """The runs with what their build takes by one thread; the run itself may have read the index from disk."""
    longest: dict[str, float] = {}
    for run in runs:
        if run.threads == 1:
            build = hash_parts(run.contender, run.build)
            longest[build] = max(run.build_seconds, longest.get(build, 0.0))
    seconds = [longest.get(hash_parts(run.contender, run.build), run.build_seconds) for run in runs]
    return [run.model_copy(update={"build_seconds": took}) for run, took in zip(runs, seconds, strict=True)]
