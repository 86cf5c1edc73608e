"""The whole grid on every data set: resumable, one JSON a run; `page` writes what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from shortlist.errors import ShortlistError
from shortlist.runtime.threads import available_threads
from shortlist_exporter.commands.progress import progress_bar

from benchmarks.common.runs import Run, Store
from benchmarks.contenders.registry import CONTENDERS, Contender
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.sweep.harness import BATCHES, Harness
from benchmarks.sweep.peers import sweep

from .page import write_page
from .tables import worth

SETS: dict[str, dict[str, str]] = {"smollm2": {}, "ptb": {}, "synthetic": {}}


def run_all(place: Place, store: Store, docs: Path, rows: int, names: Collection[str], kinds: Collection[str]) -> None:
    """Sweep the quick ones of `kinds` on the sets `names`, then the slow ones; each set and Ctrl-C write the page."""
    sets = dict(opened(place, names))
    ordered = sorted(sets, key=lambda name: size(sets[name]))
    try:
        for quick, name in product((True, False), ordered):
            data = sets[name]
            chosen = [CONTENDERS[kind] for kind in kinds if CONTENDERS[kind].quick == quick]
            if isinstance(data, DataSet) and chosen:
                one_set(data, store, rows, chosen)
                write_page(list(SETS), sets, store, docs)
    except KeyboardInterrupt:
        pass
    write_page(list(SETS), sets, store, docs)


def size(data: DataSet | ShortlistError) -> int:
    """Weights of the layer: small ones go first, since they are done soon."""
    return data.dense.weight.size if isinstance(data, DataSet) else 0


def opened(place: Place, names: Collection[str]) -> Iterator[tuple[str, DataSet | ShortlistError]]:
    """Each of these data sets, or why it cannot be had."""
    for name in names:
        try:
            yield name, DATASETS[name](replace(place, options=SETS[name]))
        except ShortlistError as error:
            yield name, error


def one_set(data: DataSet, store: Store, rows: int, kinds: Sequence[type[Contender]]) -> None:
    """Batch 1 on one thread for the grid of `kinds`; other batches, and all threads, for each one's front."""
    single = Harness(data, store, threads=1, rows=rows)
    runs = list(sweep(single, kinds))
    for threads in sorted({1, available_threads()}):
        repeated(Harness(data, store, threads=threads, rows=rows, batches=BATCHES), worth(runs))


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
