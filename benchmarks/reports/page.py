"""`docs/benchmarks.md` and its pictures, from the runs on disk and those kept beside the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shortlist.errors import ShortlistError
from shortlist.runtime.threads import available_threads

from benchmarks.common.runs import Run, Store, keep, kept, key_of, machine
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DataSet
from benchmarks.sweep.harness import BATCHES, absent

from .plots import precision_against_time
from .tables import front, short, table, usable, worth

PAGE, PICTURES, KEPT = "benchmarks.md", "pictures", "runs.jsonl"  # beside the page: what it is made of
SCREEN = "shortlist l2s"  # has options beyond its paper; each is shown, on a front or not
HEADER = """# Benchmarks

Written by `make bench FULL=1 DATA=folder`; do not edit. Every figure comes from one JSON file a run below
`build/bench/runs`, or from [runs.jsonl](runs.jsonl), where the page before left what the same processor had run. Rows
are distinct, held out by document and in random order; precision is read off the timed calls, with 95 % intervals over
rows; settings dearer than one at under half of dense's speed are left out; dense is the fastest spelling in ONNX
Runtime, timed in the same blocks with the same threads and batch. Times include a peer's change of basis; an index is
built by one thread. Other work may have kept other cores busy: compare `times dense`, not microseconds, and no small
differences. What keeps this honest stands in `benchmarks/sweep/harness.py`. What serving over HTTP costs, beside other
servers: [http.md](http.md).
"""


class Part(NamedTuple):
    """What the page says of a data set: lines of what is left to run, and its section."""

    left: list[str]
    section: str


def write_page(names: Sequence[str], sets: Mapping[str, DataSet | ShortlistError], store: Store, docs: Path) -> None:
    """The page, and the runs that it is made of; of those `names` that are none of `sets` it says what it said."""
    page = docs / PAGE
    before = page.read_text("utf-8") if page.is_file() else ""
    found = {name: done(store, data, docs) for name, data in sets.items() if isinstance(data, DataSet)}
    parts = [
        part_of(name, sets[name], found.get(name, []), docs) if name in sets else part_before(name, before)
        for name in names
    ]
    left = "".join(line for part in parts for line in part.left)
    note = f"\nNot all of the grid is done yet; the same command goes on. What is left:\n\n{left}" if left else ""
    page.write_text("".join([HEADER, note, *(part.section for part in parts)]), "utf-8")
    every = [*filter(current, kept(docs / KEPT)), *(run for runs in found.values() for run in runs if not run.error)]
    keep(docs / KEPT, list({(run.asked, run.fingerprint, run.machine): run for run in every}.values()))


def part_of(name: str, data: DataSet | ShortlistError, runs: Sequence[Run], docs: Path) -> Part:
    """From the set's `runs`; draws its pictures."""
    if not isinstance(data, DataSet):
        return Part([], f"\n## {name}\n\nNot run: {data}.\n")
    return Part([*unfinished(data, runs), *unrepeated(data, runs)], section(name, data, with_missing(data, runs), docs))


def part_before(name: str, page: str) -> Part:
    """As it stands on the page."""
    note, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    text = next((text for text in sections if text.startswith(f"## {name}")), f"## {name}\n\nNot run.\n")
    left = [line for line in note.splitlines(keepends=True) if line.startswith(f"- {name}")]
    return Part(left, f"\n{text.rstrip()}\n")


def done(store: Store, data: DataSet, docs: Path) -> list[Run]:
    """The data set's runs on disk, and those beside the page that this processor made and nobody repeated since.

    In an order that does not depend on where they were found: the same runs make the same page.
    """
    every = [*(run for run in kept(docs / KEPT) if run.machine == machine()), *store.runs()]
    found = {run.asked: run for run in every if run.fingerprint == data.fingerprint and current(run)}
    return [found[asked] for asked in sorted(found)]


def with_missing(data: DataSet, runs: Sequence[Run]) -> list[Run]:
    """The runs, and a line for every contender that has none."""
    missing = [name for name in CONTENDERS if not any(run.contender == name for run in runs)]
    blank = Run(dataset=data.name, fingerprint=data.fingerprint, contender="", build={}, threads=1)
    why = {name: absent(CONTENDERS[name]) or "not run" for name in missing}
    return [*runs, *(blank.model_copy(update={"contender": name, "error": error}) for name, error in why.items())]


def unfinished(data: DataSet, runs: Sequence[Run]) -> list[str]:
    """A line for each contender with builds that have no run, though they could."""
    known = {(run.contender, key_of(run.build)) for run in runs}
    grids = {kind.name: kind.grid(data.dense) for kind in CONTENDERS.values() if not absent(kind)}
    left = {name: sum((name, key_of(build)) not in known for build in grid) for name, grid in grids.items()}
    return [f"- {data.name}: {name}, {count} of {len(grids[name])} builds\n" for name, count in left.items() if count]


def unrepeated(data: DataSet, runs: Sequence[Run]) -> list[str]:
    """A line for each number of threads by which settings were not run at other batches."""
    asked = {run.label for run in worth(runs)}
    left = {threads: asked - {run.label for run in wide(runs, threads)} for threads in sorted({1, available_threads()})}
    return [
        f"- {data.name}: other batches by {threads} thread(s), {len(missing)} of {len(asked)} settings\n"
        for threads, missing in left.items()
        if missing
    ]


def wide(runs: Sequence[Run], threads: int) -> list[Run]:
    """Runs at several batches."""
    return [run for run in runs if len(run.spent) > 1 and run.threads == threads]


def current(run: Run) -> bool:
    """Whether the contender would make the same index today."""
    return run.contender not in CONTENDERS or run.revision == CONTENDERS[run.contender].revision


def as_built(runs: Sequence[Run]) -> list[Run]:
    """The runs with what their build takes by one thread; the run itself may have read the index from disk."""
    longest: dict[str, float] = {}
    for run in runs:
        if run.threads == 1:
            build = key_of(run.contender, run.build)
            longest[build] = max(run.build_seconds, longest.get(build, 0.0))
    took = [longest.get(key_of(run.contender, run.build), run.build_seconds) for run in runs]
    return [run.model_copy(update={"build_seconds": seconds}) for run, seconds in zip(runs, took, strict=True)]


def section(name: str, data: DataSet, runs: Sequence[Run], docs: Path) -> str:
    """A data set's pictures and tables."""
    runs = as_built(runs)
    single = [run for run in runs if run.threads == 1 and (not run.spent or list(run.spent) == [1])]
    machines = ", ".join(sorted({run.machine for run in runs if run.machine}))
    shape = f"V = {data.dense.classes:,}, d = {data.dense.dim}, fitted on {len(data.fit.contexts):,} contexts"
    text = [f"\n## {data.name}\n\n{shape}. {machines}.\n"]
    for k in (1, 5) if usable(single, 1, 1) else ():
        picture = Path(PICTURES) / f"{name}-p{k}.png"
        precision_against_time(single, docs / picture, k)
        text.append(f"\n![P@{k} against time]({picture})\n")
    text.append("\n### Pareto front, batch 1, one thread\n\n" + table(front(single)))
    asked = {run.label for run in worth(single)}
    best = [*worth(single), *short(single), *(run for run in single if run.error)]
    text.append("\n### Each contender's fastest at P@1 of .95, .99 and .999, or its most precise\n\n" + table(best))
    own = sorted(usable(single, 1, 1), key=lambda run: -run.spent[1].speedup)
    own = [run for run in own if run.contender == SCREEN]
    if own:
        text.append(f"\n### Every option of {SCREEN}, batch 1, one thread\n\n" + table(own))
    for batch in BATCHES[1:]:
        for threads in sorted({run.threads for run in runs}):
            same = [run for run in usable(wide(runs, threads), 1, batch) if run.label in asked]
            ordered = sorted(same, key=lambda run: -run.spent[batch].speedup)
            text.append(f"\n### The same at batch {batch}, {threads} thread(s)\n\n" + table(ordered, batch))
    return "".join(text)
