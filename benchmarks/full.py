"""The whole grid on every data set: resumable, one JSON a run, `docs/benchmarks.md` and its pictures from the JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from shortlist.errors import ShortlistError
from shortlist.threads import available_threads
from shortlist_exporter.progress import progress_bar

from .contenders import CONTENDERS, Contender
from .datasets import DATASETS, DataSet, Place
from .harness import BATCHES, Harness, absent
from .peers import sweep
from .plots import precision_against_time
from .runs import Run, Store, keep, kept, key_of, machine
from .tables import front, table, usable

SETS: dict[str, dict[str, str]] = {"smollm2": {}, "ptb": {}, "synthetic": {}}
PICTURES, KEPT = "pictures", "runs.jsonl"  # beside the page: what it is made of
SCREEN = "shortlist l2s"  # has options beyond its paper; each is shown, on a front or not
HEADER = """# Benchmarks

Written by `make bench FULL=1 DATA=folder`; do not edit. Every figure comes from one JSON file a run below
`build/bench/runs`, or from [runs.jsonl](runs.jsonl), where the page before left what the same processor had run. Rows
are distinct, held out by document and in random order; precision is read off the timed calls, with 95 % intervals over
rows; settings dearer than one at under half of dense's speed are left out; dense is the fastest spelling in ONNX
Runtime, timed in the same blocks with the same threads and batch. Times include a peer's change of basis. Other work
may have kept other cores busy: compare `times dense`, not microseconds, and no small differences. What keeps this
honest stands in `benchmarks/harness.py`. What serving over HTTP costs, beside other servers: [http.md](http.md).
"""


def run_all(place: Place, store: Store, docs: Path, rows: int, names: Collection[str], kinds: Collection[str]) -> None:
    """Sweep the quick ones of `kinds` on the sets `names`, then the slow ones; each set and Ctrl-C write the page."""
    sets = dict(opened(place))
    ordered = sorted(names, key=lambda name: size(sets[name]))
    try:
        for quick, name in product((True, False), ordered):
            data = sets[name]
            chosen = [CONTENDERS[kind] for kind in kinds if CONTENDERS[kind].quick == quick]
            if isinstance(data, DataSet) and chosen:
                one_set(data, store, rows, chosen)
                write_page(sets, store, docs)
    except KeyboardInterrupt:
        pass
    write_page(sets, store, docs)


def size(data: DataSet | ShortlistError) -> int:
    """Weights of the layer: small ones go first, since they are done soon."""
    return data.dense.weight.size if isinstance(data, DataSet) else 0


def opened(place: Place) -> Iterator[tuple[str, DataSet | ShortlistError]]:
    """Each data set, or why it cannot be had."""
    for name, options in SETS.items():
        try:
            yield name, DATASETS[name](replace(place, options=options))
        except ShortlistError as error:
            yield name, error


def write_page(sets: Mapping[str, DataSet | ShortlistError], store: Store, docs: Path) -> None:
    """`docs/benchmarks.md` and its pictures, from the runs on disk."""
    found = {name: done(store, data, docs) for name, data in sets.items() if isinstance(data, DataSet)}
    known = [(data, found[name]) for name, data in sets.items() if isinstance(data, DataSet)]
    left = [line for data, runs in known for line in (*unfinished(data, runs), *unrepeated(data, runs))]
    note = "\nNot all of the grid is done yet; the same command goes on. What is left:\n\n" + "".join(left)
    parts = [
        section(name, data, with_missing(data, found[name]), docs)
        if isinstance(data, DataSet)
        else f"\n## {name}\n\nNot run: {data}.\n"
        for name, data in sets.items()
    ]
    (docs / "benchmarks.md").write_text("".join([HEADER, note if left else "", *parts]), "utf-8")
    every = [*filter(current, kept(docs / KEPT)), *(run for runs in found.values() for run in runs if not run.error)]
    keep(docs / KEPT, list({(run.asked, run.fingerprint, run.machine): run for run in every}.values()))


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


def one_set(data: DataSet, store: Store, rows: int, kinds: Sequence[type[Contender]]) -> None:
    """Batch 1 on one thread for the grid of `kinds`; other batches, and all threads, for each one's front."""
    single = Harness(data, store, threads=1, rows=rows)
    runs = list(sweep(single, kinds))
    for threads in sorted({1, available_threads()}):
        repeated(Harness(data, store, threads=threads, rows=rows, batches=BATCHES), worth(runs))


def worth(runs: Sequence[Run]) -> list[Run]:
    """Each contender's fastest run at P@1 of .95, .99 and .999, by one thread."""
    single = usable([run for run in runs if list(run.spent) == [1] and run.threads == 1], 1, 1)
    kept: dict[str, Run] = {}
    for least in (0.95, 0.99, 0.999):
        for run in sorted(single, key=lambda run: -run.spent[1].speedup):
            if run.precision[1].value >= least:
                kept.setdefault(f"{run.contender} {least}", run)
    return list({run.label: run for run in kept.values()}.values())


def short(runs: Sequence[Run]) -> list[Run]:
    """The most precise run of each contender that reaches no P@1 of .95; of equals the fastest."""
    reached = {run.contender for run in worth(runs)}
    ordered = sorted(usable(runs, 1, 1), key=lambda run: (run.precision[1].value, run.spent[1].speedup))
    return list({run.contender: run for run in ordered if run.contender not in reached}.values())


def repeated(harness: Harness, runs: Sequence[Run]) -> None:
    """The same contenders and settings by another harness, with a bar; each build is fitted once."""
    builds: dict[str, list[Run]] = {}
    for run in runs:
        builds.setdefault(f"{run.contender} {run.build}", []).append(run)
    with progress_bar("batches") as report:
        for done, some in enumerate(builds.values()):
            report(f"{harness.data.name}, {harness.threads} thread(s): {some[0].contender}"[:60], done, len(builds))
            harness.at(CONTENDERS[some[0].contender], some[0].build, [run.setting for run in some])
        report(harness.data.name, len(builds), len(builds))


def section(name: str, data: DataSet, runs: Sequence[Run], docs: Path) -> str:
    """A data set's pictures and tables."""
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
