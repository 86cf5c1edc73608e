"""`tune`: split, search, choose, write. The bundle is the very head that was held against the test split."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from shortlist.bundle.reader import GRAPHS_FOLDER, INDEX_FILE
from shortlist.bundle.writer import write_version
from shortlist.errors import BadInput, QualityError
from shortlist.evaluation.truth import Truth

from shortlist_exporter.core.types import FloatArray, Progress, quiet
from shortlist_exporter.export.request import Request, check_request
from shortlist_exporter.export.seal import add_report, verify_and_seal
from shortlist_exporter.export.write import describe_bundle, describe_files, write_names
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.certificate import write_certificate
from shortlist_exporter.inputs.sources import Contexts, Dense, check_pair
from shortlist_exporter.inputs.splits import Rows, Splits, drop_known_rows, select_rows, split_three_ways
from shortlist_exporter.methods.registry import Fitted
from shortlist_exporter.records.report import HELD_OUT
from shortlist_exporter.records.tuning import Part, Promise, TuneRecord, write_record
from shortlist_exporter.report.measure.samples import Sample

from .bench import Bench
from .cache import Cache, default_folder
from .choice import Choice, make_dense_head
from .clock import Clock
from .fits import Fit, Fits, read_manifest
from .outcome import make_record
from .promises import check_promise, check_rows, fits_memory
from .search import Head, Search
from .space import DENSE_METHOD, Build, choose_methods, list_builds

MAX_TUNE_ROWS = 8192  # distinct
MAX_TEST_ROWS = 16_384
DENSE_TEST_ROWS = 512
DEFAULT_MINUTES = 15.0


@dataclass(frozen=True)
class TuneRequest:
    """What to find and how the bundle is written.

    minutes: for the search; writing the bundle comes after. methods: those tried, or all that approximate the layer.
    allow_dense: where no other head keeps the promise, or none is faster, export dense. bundle: labels, keep_dense,
    fallback, max_k, seed.
    """

    promise: Promise
    minutes: float = DEFAULT_MINUTES
    methods: Sequence[str] = ()
    allow_dense: bool = False
    cache: Path = field(default_factory=default_folder)
    bundle: Request = field(default_factory=Request)

    @property
    def depths(self) -> tuple[int, ...]:
        """Each k whose P@k the bundle's manifest and report give beside the usual ones."""
        return replace(self.bundle, promise=self.promise.precision).depths


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
    the end of the budget end the search, not the choice among the heads that it measured. Raises BadInput,
    VersionExists, BundleError, NoHead; nothing is left behind in any of these cases.
    """
    if not request.minutes > 0:
        raise BadInput(f"the time budget is {request.minutes:g} minutes, which leaves no time: give more")
    check_request(dense, contexts, out, replace(request.bundle, threads=request.promise.threads))
    if request.allow_dense and not request.bundle.keep_dense:
        raise BadInput(
            "dense may be exported but is to be left out of the bundle: give one of --allow-dense, --no-dense"
        )
    check_promise(request.promise, dense, request.bundle.max_k)
    methods = choose_methods(request.methods)
    splits = split_three_ways(contexts, request.bundle.seed, MAX_TUNE_ROWS, MAX_TEST_ROWS, test)
    if test is not None:
        splits = replace(splits, test=drop_known_rows(splits.test, test, contexts))
    check_splits(dense, contexts, test, splits, request.promise)
    with write_version(out) as folder:  # a disk that refuses does so before the search
        clock = Clock(request.minutes, progress)
        bench = make_bench(dense, contexts, test, splits, request, progress)
        search = Search(bench, dense, clock)
        search.run(list(list_builds(methods, dense)))
        choice = Choice(search)
        winner = choose_head(choice, request, clock)
        record = make_record(choice, winner, describe_splits(contexts, test, splits), request.promise)
        if winner is None:
            raise NoHead(record)
        clock.report_stage("writing the bundle")
        sample = make_sample(contexts if test is None else test, splits.test, bench.truths["test"], request)
        write_bundle(folder, out, contexts, bench.fits, winner[1], record, request, sample)
    return record


def check_splits(dense: Dense, contexts: Contexts, test: Contexts | None, splits: Splits, promise: Promise) -> None:
    """Refuse rows on which nothing could be fitted or shown; raises BadInput."""
    if test is not None:
        check_pair(dense, test)
    fit = contexts.contexts[splits.fit]
    if (fit == fit[0]).all():
        raise BadInput(f"the fit split is one context vector, {len(fit):,} times over: capture real text")
    for name, rows in {"tune": splits.tune, "test": splits.test}.items():
        check_rows(promise, name, len(rows))


def describe_splits(contexts: Contexts, test: Contexts | None, splits: Splits) -> dict[str, Part]:
    """Rows and documents of each split."""
    return {
        "fit": describe_part(contexts, splits.fit),
        "tune": describe_part(contexts, splits.tune),
        "test": describe_part(contexts if test is None else test, splits.test),
    }


def describe_part(contexts: Contexts, rows: Rows) -> Part:
    """The rows and documents of one split."""
    documents = None if contexts.documents is None else len(np.unique(contexts.documents[rows]))
    return Part(rows=len(rows), documents=documents)


def make_bench(
    dense: Dense, contexts: Contexts, test: Contexts | None, splits: Splits, request: TuneRequest, progress: Progress
) -> Bench:
    """The bench with both splits and the fits, on which all heads are measured."""
    cache = Cache(request.cache)
    fitting = Contexts(contexts.contexts[splits.fit], sha256=contexts.sha256)
    heads = Fits(cache, dense, fitting, request.bundle.seed, request.bundle.keep_dense)
    rows: dict[str, FloatArray] = {
        "tune": contexts.contexts[splits.tune],
        "test": (contexts if test is None else test).contexts[splits.test],
    }
    bench = Bench(cache, heads, request.promise, dense.module, rows)
    bench.compute_truths(dense.real_classes, request.depths, progress)
    return bench


def choose_head(choice: Choice, request: TuneRequest, clock: Clock) -> tuple[Head, Fit] | None:
    """The fastest head that keeps the promise; dense where it is the only one, or faster, and allowed."""
    clock.report_stage("choosing")
    winner = choice.choose()
    if winner is not None and choice.search.trials[winner[0]].tune.speedup > 1:
        return winner
    if not request.allow_dense or not fits_memory(request.promise, measure_dense(choice).bytes):
        return None
    return make_dense_head(), choice.bench.fits.fit(Build(DENSE_METHOD), 1, quiet)


def measure_dense(choice: Choice) -> Fit:
    """Dense among the trials, on both splits."""
    fit = choice.bench.fits.fit(Build(DENSE_METHOD), 1, quiet)
    trial = choice.search.measure_trial(fit, {}, 0)
    test = choice.bench.measure(fit, {}, "test", DENSE_TEST_ROWS)
    choice.add_figures(make_dense_head(), test=test, rung=trial.rung)
    return fit


def make_sample(contexts: Contexts, rows: Rows, truth: Truth, request: TuneRequest) -> Sample:
    """The test split with as many true classes as are measured, as an export has its held-out rows."""
    part = select_rows(contexts, rows)
    depth = truth.ids.shape[1]
    best = truth.first_classes(min(depth, request.bundle.max_k or depth))
    return Sample(HELD_OUT, truth.contexts, best, part.documents, part.kind_rows, request.depths)


def write_bundle(
    folder: Path, out: Path, contexts: Contexts, fits: Fits, fit: Fit, record: TuneRecord, request: TuneRequest,
    sample: Sample,
) -> None:  # fmt: skip
    """The very head that was tested, finished as an export finishes its own, with the record beside it."""
    dense, module = fits.dense, fits.dense.module
    threads = request.promise.threads
    bundle = replace(request.bundle, method=fit.build.method, options=dict(fit.build.options), promise={})
    bundle = replace(bundle, threads=threads, at=request.depths)
    files = copy_graphs(fit, folder) | write_names(folder, bundle.names)
    if bundle.keep_dense and bundle.certificate:
        files |= write_certificate(folder, dense, fits.contexts.contexts, bundle.seed)
    description = describe_bundle(dense, contexts, out, bundle)
    description["provenance"] |= {"tune": record.summary()}
    draft = read_manifest(fit).model_copy(update=description | describe_files(files))
    write_record(folder, record)
    verify_and_seal(folder, draft, bundle, Fitted(torch.nn.Identity(), fit.cost), sample, module, module, quiet)
    if bundle.report:
        add_report(folder, out, bundle, sample, quiet)


def copy_graphs(fit: Fit, folder: Path) -> GraphFiles:
    """The graphs and the index of a fit, copied to `folder`."""
    shutil.copytree(fit.folder / GRAPHS_FOLDER, folder / GRAPHS_FOLDER)
    if (fit.folder / INDEX_FILE).is_file():
        shutil.copy(fit.folder / INDEX_FILE, folder)
    manifest = read_manifest(fit)
    return GraphFiles(dict(manifest.graphs), dict(manifest.arrays))
