"""`tune`: split, search, choose, write. The bundle is the very head that was held against the test split."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.reader import GRAPHS, INDEX
from shortlist.bundle.writer import writing
from shortlist.errors import BadInput, QualityError

from shortlist_exporter.core.provenance import record_provenance
from shortlist_exporter.core.types import FloatArray, Progress, quiet
from shortlist_exporter.export.request import Request, check_request
from shortlist_exporter.export.run import add_report, finish
from shortlist_exporter.export.write import exact_plan_of
from shortlist_exporter.graphs.bounds import write_certificate
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.inputs.sources import Contexts, Dense, check_pair
from shortlist_exporter.inputs.splits import Splits, three_ways, two_ways
from shortlist_exporter.methods.registry import Fitted
from shortlist_exporter.records.report import HELD_OUT
from shortlist_exporter.records.tuning import Part, Promise, TuneRecord, write
from shortlist_exporter.report.measure.samples import Sample
from shortlist_exporter.verify.quality import DEPTH, Truth

from .bench import Bench
from .cache import Cache, default_folder
from .choice import Choice, dense_head
from .clock import Clock
from .fits import Fit, Fits, manifest_at
from .outcome import recorded
from .promises import check_promise, check_rows, fits
from .search import Head, Search
from .space import DENSE, Build, builds, chosen_methods

TUNE_ROWS = 8192  # at most, distinct
TEST_ROWS = 16_384
MINUTES = 15.0


@dataclass(frozen=True)
class TuneRequest:
    """What to find and how the bundle is written.

    minutes: for the search; writing the bundle comes after. methods: those tried, or all that approximate the layer.
    allow_dense: where no other head keeps the promise, or none is faster, export dense. bundle: labels, keep_dense,
    fallback, max_k, seed.
    """

    promise: Promise
    minutes: float = MINUTES
    methods: Sequence[str] = ()
    allow_dense: bool = False
    cache: Path = field(default_factory=default_folder)
    bundle: Request = field(default_factory=Request)


class NoHead(QualityError):
    """Nothing that may be exported keeps the promise; `record` says what was tried."""

    def __init__(self, record: TuneRecord) -> None:
        super().__init__(record.sentence)
        self.record = record


def tune(
    dense: Dense,
    contexts: Contexts,
    out: Path,
    request: TuneRequest,
    progress: Progress = quiet,
    test: Contexts | None = None,
) -> TuneRecord:
    """Find the fastest head that keeps the promise and write it to `out`; returns all that was tried.

    test: contexts of their own for the test split. `progress` gets (stage, seconds done, seconds in all). Ctrl-C and
    the end of the budget end the search, not the choice among what it found. Raises BadInput, VersionExists,
    BundleError, NoHead; nothing is left behind in any of these cases.
    """
    if request.minutes <= 0:
        raise BadInput(f"the time budget is {request.minutes:g} minutes, which leaves no time: give more")
    check_request(dense, contexts, out, replace(request.bundle, threads=request.promise.threads))
    if request.allow_dense and not request.bundle.keep_dense:
        raise BadInput(
            "dense may be exported but is to be left out of the bundle: give one of --allow-dense, --no-dense"
        )
    check_promise(request.promise, dense, request.bundle.max_k)
    methods = chosen_methods(request.methods)
    splits = splits_of(contexts, test, request.bundle.seed)
    check_splits(dense, contexts, test, splits, request.promise)
    with writing(out) as folder:  # a disk that refuses does so before the search
        clock = Clock(request.minutes, progress)
        bench = bench_of(dense, contexts, test, splits, request, progress)
        search = Search(bench, dense, clock)
        search.run(list(builds(methods, dense)))
        choice = Choice(search)
        chosen = chosen_head(choice, request, clock)
        record = recorded(choice, chosen, splits_told(contexts, test, splits), request.promise)
        if chosen is None:
            raise NoHead(record)
        clock.tell("writing the bundle")
        tested = contexts if test is None else test
        documents = None if tested.documents is None else tested.documents[splits.test]
        files = copied(chosen[1], folder, dense, bench.fits, request.bundle)
        fill(folder, out, dense, contexts, chosen[1], files, record, request, bench.truths["test"], documents)
    return record


def splits_of(contexts: Contexts, test: Contexts | None, seed: int) -> Splits:
    """Rows to fit, tune and test on; raises BadInput."""
    if test is None:
        return three_ways(contexts, seed, TUNE_ROWS, TEST_ROWS)
    return two_ways(contexts, test, seed, TUNE_ROWS, TEST_ROWS)


def check_splits(dense: Dense, contexts: Contexts, test: Contexts | None, splits: Splits, promise: Promise) -> None:
    """Refuse rows on which nothing could be fitted or shown; raises BadInput."""
    if test is not None:
        check_pair(dense, test)
    fit = contexts.contexts[splits.fit]
    if (fit == fit[0]).all():
        raise BadInput(f"the fit split is one context vector, {len(fit):,} times over: capture real text")
    for name, rows in {"tune": splits.tune, "test": splits.test}.items():
        check_rows(promise, name, len(rows))


def splits_told(contexts: Contexts, test: Contexts | None, splits: Splits) -> dict[str, Part]:
    """Rows and documents of each split."""
    return {
        "fit": part_of(contexts, splits.fit),
        "tune": part_of(contexts, splits.tune),
        "test": part_of(contexts if test is None else test, splits.test),
    }


def part_of(contexts: Contexts, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Part:
    """How much it is."""
    documents = None if contexts.documents is None else len(np.unique(contexts.documents[rows]))
    return Part(rows=len(rows), documents=documents)


def bench_of(
    dense: Dense, contexts: Contexts, test: Contexts | None, splits: Splits, request: TuneRequest, progress: Progress
) -> Bench:
    """Everything that heads are measured with."""
    cache = Cache(request.cache)
    fitting = Contexts(contexts.contexts[splits.fit], sha256=contexts.sha256)
    heads = Fits(cache, dense, fitting, request.bundle.seed, request.bundle.keep_dense)
    rows: dict[str, FloatArray] = {
        "tune": contexts.contexts[splits.tune],
        "test": (contexts if test is None else test).contexts[splits.test],
    }
    bench = Bench(cache, heads, request.promise, dense.module, rows)
    bench.learn(dense.classes - int(dense.padded.size), progress)
    return bench


def chosen_head(choice: Choice, request: TuneRequest, clock: Clock) -> tuple[Head, Fit] | None:
    """The fastest head that keeps the promise; dense where it is the only one, or faster, and allowed."""
    clock.tell("choosing")
    found = choice.choose()
    if found is not None and choice.search.trials[found[0]].tune.speedup > 1:
        return found
    if not request.allow_dense or not fits(request.promise, measured_dense(choice).bytes):
        return None
    return dense_head(), choice.bench.fits.at(Build(DENSE), 1, quiet)


def measured_dense(choice: Choice) -> Fit:
    """Dense among the trials, on both splits."""
    fit, rows = choice.bench.fits.at(Build(DENSE), 1, quiet), 512
    trial = choice.search.trial(fit, {}, 0)
    choice.note(dense_head(), test=choice.bench.measured(fit, {}, "test", rows), rung=trial.rung)
    return fit


def copied(fit: Fit, folder: Path, dense: Dense, fits: Fits, bundle: Request) -> GraphFiles:
    """The chosen head's files in `folder`, and what proves exact answers."""
    shutil.copytree(fit.folder / GRAPHS, folder / GRAPHS)
    if (fit.folder / INDEX).is_file():
        shutil.copy(fit.folder / INDEX, folder)
    manifest = manifest_at(fit)
    files = GraphFiles(manifest.graphs, manifest.arrays)
    if bundle.keep_dense and bundle.certificate:
        files |= write_certificate(folder, dense, fits.contexts.contexts, bundle.seed)
    return files


def fill(
    folder: Path, out: Path, dense: Dense, contexts: Contexts, fit: Fit, files: GraphFiles, record: TuneRecord,
    request: TuneRequest, truth: Truth, documents: npt.NDArray[np.int32] | None,
) -> None:  # fmt: skip
    """What stands beside the chosen head's graphs: it is measured again by the exporter, and the record is written."""
    bundle, real = request.bundle, dense.classes - int(dense.padded.size)
    update = {
        "name": out.parent.name,
        "version": int(out.name),
        "max_k": bundle.max_k or real,
        "graphs": files.graphs,
        "arrays": files.arrays,
        "exact_plan": exact_plan_of(files),
        "fallback": bundle.fallback,
        "provenance": record_provenance(dense, contexts) | {"tune": record.summary()},
    }
    write(folder, record)
    deep = min(DEPTH, bundle.max_k or real)
    shallow = replace(truth, ids=truth.ids[:, :deep], logprobs=truth.logprobs[:, :deep])
    bundle = replace(bundle, method=fit.build.method, promise={}, threads=request.promise.threads)
    made, draft = Fitted(torch.nn.Identity(), fit.cost), manifest_at(fit).model_copy(update=update)
    finish(folder, draft, bundle, made, shallow, dense.module, dense.module, quiet)
    if bundle.report:
        add_report(folder, out, bundle, Sample(HELD_OUT, truth.contexts, shallow, documents), quiet)
