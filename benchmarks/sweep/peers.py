"""Find the fastest peer that keeps the promise: sweep the quick grids, then measure precision on every test row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from shortlist.evaluation.statistics import compute_precision
from shortlist_exporter.commands.progress import progress_bar

from benchmarks.common.runs import Run
from benchmarks.contenders.registry import CONTENDERS, Contender, Options

from .harness import SWEEP_K, Harness, limit_threads

LEAST_P1, LEAST_P5 = 0.99, 0.98

# What the whole grid found near the promise on a layer of 49,152 x 576: contender, build, settings.
NEAR_PROMISE: tuple[tuple[str, Options, tuple[Options, ...]], ...] = (
    ("int8 rows, onnxruntime", {"basis": "raw"}, ({"rescored": 16},)),
    ("scann tree", {"basis": "raw", "leaves": 222}, ({"leaves": 111, "reorder": 1000},)),
    ("FlashHead", {"basis": "raw", "rows": 16}, ({"probes": 512}, {"probes": 768})),
    (
        "scann tree",
        {"basis": "whitened", "leaves": 222},
        ({"leaves": 27, "reorder": 200}, {"leaves": 55, "reorder": 100}, {"leaves": 55, "reorder": 200}),
    ),
    (
        "scann tree",
        {"basis": "whitened", "leaves": 443},
        ({"leaves": 55, "reorder": 100}, {"leaves": 55, "reorder": 200}, {"leaves": 110, "reorder": 100}),
    ),
    (
        "scann tree",
        {"basis": "whitened", "leaves": 887},
        ({"leaves": 110, "reorder": 50}, {"leaves": 110, "reorder": 100}),
    ),
    ("scann truncated", {"basis": "whitened", "width": 128, "block": 1}, ({"reorder": 500},)),
    (
        "faiss truncated",
        {"basis": "whitened", "width": 128, "codes": "PQ128x4fs"},
        ({"refined": 1000}, {"refined": 2000}),
    ),
    ("hnswlib FGD", {"basis": "whitened", "links": 16, "construction": 200}, ({"ef": 400}, {"ef": 600})),
    (
        "usearch",
        {"basis": "whitened", "lift": True, "dtype": "bf16", "links": 16, "construction": 200},
        ({"expansion": 1000},),
    ),
)
SAMPLE_SLACK = 0.003  # by so much a sweep's sample of rows may be under the promise that all rows keep
PRECISION_BATCH = 8


def sweep_grids(harness: Harness, kinds: Sequence[type[Contender]]) -> Iterator[Run]:
    """Yield the runs of every build and setting of `kinds`, with a progress bar; stored runs are read."""
    builds = [(kind, build) for kind in kinds for build in kind.grid(harness.data.dense)]
    with progress_bar("contenders") as report:
        for done, (kind, build) in enumerate(builds):
            report(f"{harness.data.name}: {kind.name} {' '.join(map(str, build.values()))}"[:60], done, len(builds))
            yield from harness.sweep(kind, build)
        report(harness.data.name, len(builds), len(builds))


def run_near_promise(harness: Harness) -> Iterator[Run]:
    """Yield the runs of the builds and settings in `NEAR_PROMISE` alone."""
    with progress_bar("peers") as report:
        for done, (name, build, settings) in enumerate(NEAR_PROMISE):
            report(f"peers: {name}", done, len(NEAR_PROMISE))
            yield from harness.run_settings(CONTENDERS[name], build, settings)
        report("peers", len(NEAR_PROMISE), len(NEAR_PROMISE))


def find_best_peer(harness: Harness, runs: Sequence[Run]) -> tuple[Run, Contender] | None:
    """The fastest run whose contender, fitted again, reaches `LEAST_P1` and `LEAST_P5` on all test rows, or None."""
    hopeful = [run for run in runs if run.reaches(LEAST_P1 - SAMPLE_SLACK, LEAST_P5 - SAMPLE_SLACK)]
    for run in sorted(hopeful, key=lambda run: -run.spent[1].speedup):
        with limit_threads(harness.threads, own_threads=CONTENDERS[run.contender].own_threads):
            contender = fit_contender(harness, run)
            p1, p5 = measure_on_all_rows(harness, contender)
        if p1 >= LEAST_P1 and p5 >= LEAST_P5:
            return run, contender
    return None


def fit_contender(harness: Harness, run: Run) -> Contender:
    """The contender of a run, fitted again and at the run's setting."""
    contender = CONTENDERS[run.contender](run.build, harness.threads)
    contender.fit(harness.data.dense, harness.data.fit.contexts)
    contender.use(run.setting)
    return contender


def measure_on_all_rows(harness: Harness, contender: Contender) -> tuple[float, float]:
    """P@1 and P@5 on all test rows."""
    truth = harness.data.test
    rows = range(0, len(truth.contexts), PRECISION_BATCH)
    ids = np.concatenate([contender.topk(truth.contexts[i : i + PRECISION_BATCH], SWEEP_K) for i in rows])
    return compute_precision(ids, truth.best, 1), compute_precision(ids, truth.best, 5)
