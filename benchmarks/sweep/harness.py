"""One contender on one data set: fitted once, swept over its settings, each setting a run.

What keeps it honest:

- precision is read off the timed calls themselves, against stored exact answers;
- rows are distinct, held out, in random order, and never asked twice: every pass scales them by another hair;
- the dense layer runs in the same blocks, with the same threads and batch;
- impossible answers are an error; answers that come faster the second time, calls as slow as dense, and rows that
  the contender says dense answered are flagged.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from shortlist.core.results import IdArray
from shortlist.evaluation.statistics import choose_depths, estimate_precision
from shortlist.evaluation.timing import (
    Call,
    Timed,
    find_fastest,
    rescale_rows,
    time_call,
    time_calls,
)
from threadpoolctl import ThreadpoolController, threadpool_limits

from benchmarks.common.dense import open_spellings
from benchmarks.common.runs import (
    Run,
    Share,
    Spent,
    Store,
    describe_slowness,
    hash_parts,
    read_processor_name,
    read_versions,
)
from benchmarks.contenders.registry import Contender, Options
from benchmarks.datasets.registry import DataSet

SWEEP_K = 10
SWEEP_BATCHES = (1, 8, 32, 128)
REPEATED_ROWS = 200  # rows asked twice
CACHED_TIME_SHARE = 0.5  # a second answer in under half the time was remembered
SLOW_TIME_SHARE = 0.9  # of dense's median
HOPELESS_SPEEDUP = 0.5  # a speed-up under which dearer settings are not tried
DENSE_INTERVAL = 5  # of single rows, dense is asked for each fifth: it would take most of the time
NUMPY_BLAS_PREFIX = "libscipy_openblas"  # the library of numpy's wheels; another one may be the peers' too
CONTENDER_ERRORS = (ImportError, RuntimeError, ValueError, MemoryError, OSError, AssertionError)


@dataclass
class Harness:
    """A data set with its dense call and the runs done so far.

    rows: timed at each batch size. seen: passes of the contender so far: none repeats another's rows.
    """

    data: DataSet
    store: Store
    threads: int = 1
    rows: int = 2048
    batches: tuple[int, ...] = (1,)
    seen: int = 0
    dense: dict[int, Call] = field(default_factory=dict)

    def choose_dense_call(self, batch: int) -> Call:
        """The fastest spelling of the dense layer at this batch size."""
        if batch not in self.dense:
            folder = self.store.folder / "dense" / self.data.fingerprint
            spellings = open_spellings(self.data.dense, folder, self.threads)
            calls = {name: make_topk_call(topk) for name, topk in spellings.items()}
            self.dense[batch] = calls[find_fastest(calls, self.data.test.contexts, batch)]
        return self.dense[batch]

    def read_run(self, kind: type[Contender], build: Options, setting: Options) -> Run | None:
        """The run of one setting, where it is on disk."""
        value = self.store.read(self.make_key(self.make_run(kind, build), setting))
        return None if value is None else Run.model_validate(value)

    def run_settings(self, kind: type[Contender], build: Options, settings: Sequence[Options]) -> list[Run]:
        """The runs of these settings alone; one fit, and none where all are on disk."""
        runs = [run for setting in settings if (run := self.read_run(kind, build, setting))]
        return runs if len(runs) == len(settings) else list(self.sweep(kind, build, settings))

    def sweep(self, kind: type[Contender], build: Options, settings: Sequence[Options] = ()) -> Iterator[Run]:
        """Runs of every setting of one build, or of those given; what is on disk is read, and fits only what is not."""
        base = self.make_run(kind, build)
        if why := explain_absence(kind):
            yield base.model_copy(update={"error": why})
            return
        record = None if settings else self.store.read(self.make_key(base))
        if record is not None:
            stored = [self.store.read(self.make_key(base, setting)) for setting in record["settings"]]
            if all(value is not None for value in stored):
                yield from (Run.model_validate(value) for value in stored)
                return
        try:
            with limit_threads(self.threads, own_threads=kind.own_threads):
                yield from self.measure(kind(build, self.threads), base, settings)
        except CONTENDER_ERRORS as error:
            failed = base.model_copy(update={"error": f"failed: {type(error).__name__}: {error}"[:300]})
            self.store.write(self.make_failure_key(base), failed.model_dump(mode="json"))
            yield failed
        else:
            self.store.drop(self.make_failure_key(base))

    def measure(self, contender: Contender, base: Run, subset: Sequence[Options]) -> Iterator[Run]:
        """Fit, then a run for each setting that is not stored yet."""
        self.seen = 0
        start = time.perf_counter()
        contender.fit(self.data.dense, self.data.fit.contexts)
        base = base.model_copy(update={"build_seconds": time.perf_counter() - start, "bytes": contender.size()})
        settings = [dict(setting) for setting in subset or contender.settings()]
        runs: list[Run] = []
        for setting in settings:
            if not subset and any(is_dearer(setting, run.setting) for run in runs if is_hopeless(run)):
                continue
            runs.append(self.run_setting(contender, base, setting))
            yield runs[-1]
        if not subset:
            self.store.write(self.make_key(base), {"settings": [run.setting for run in runs]})

    def run_setting(self, contender: Contender, base: Run, setting: Options) -> Run:
        """The stored run of a setting, or one done now and stored."""
        stored = self.store.read(self.make_key(base, setting))
        if stored is not None:
            return Run.model_validate(stored)
        contender.use(setting)
        run = self.measure_setting(contender, base.model_copy(update={"setting": setting}))
        self.store.write(self.make_key(base, setting), run.model_dump(mode="json"))
        return run

    def measure_setting(self, contender: Contender, run: Run) -> Run:
        """Precision, times and flags of the contender as it is set now."""
        truth = self.data.test.ids
        spent: dict[int, Spent] = {}
        precision: dict[int, Share] = {}
        rows = 0
        for batch in self.batches:
            both = self.time_beside_dense(contender, batch)
            ids = both["contender"].ids
            impossible = find_impossible_ids(ids, self.data)
            if impossible:
                return run.model_copy(update={"error": impossible})
            if not precision:
                precision, rows = measure_precision(ids, truth[: len(ids)]), len(ids)
            spent[batch] = compare_times(both["contender"], both["dense"])
        scored = self.count_scored(contender)
        update = {
            "rows": rows,
            "precision": precision,
            "spent": spent,
            "scored_mean": None if scored is None else float(scored.mean()),
            "dense_share": None if scored is None else float((scored == self.data.dense.classes).mean()),
            "repeat_ratio": self.measure_repeat_ratio(contender),
        }
        return flag_run(run.model_copy(update=update))

    def time_beside_dense(self, contender: Contender, batch: int) -> dict[str, Timed]:
        """Contender and dense over rows that neither has seen."""
        self.seen += 1
        rows = rescale_rows(self.data.test.contexts[: max(self.rows, batch)], self.seen)
        calls = {"contender": make_topk_call(contender.topk), "dense": self.choose_dense_call(batch)}
        return time_calls(calls, rows, batch, every={"dense": DENSE_INTERVAL if batch == 1 else 1})

    def count_scored(self, contender: Contender) -> npt.NDArray[np.int32] | None:
        """What the contender says it scored, row by row."""
        rows = self.data.test.contexts[:REPEATED_ROWS]
        parts = [contender.count_scored(rows[i : i + 1], SWEEP_K) for i in range(len(rows))]
        return np.concatenate([part for part in parts if part is not None]) if parts[0] is not None else None

    def measure_repeat_ratio(self, contender: Contender) -> float:
        """Median time of rows asked again, over that of the same number of new ones; blocks take turns."""
        self.seen += 1
        count = min(REPEATED_ROWS, len(self.data.test.contexts) // 2)
        rows = rescale_rows(self.data.test.contexts[: 2 * count], self.seen)
        old, new = rows[:count], rows[count:]
        call = make_topk_call(contender.topk)
        for row in old:
            call(row[None])
        again = [time_call(call, row[None])[0] for row in old]
        first = [time_call(call, row[None])[0] for row in new]
        return float(np.median(again) / np.median(first))

    def make_run(self, kind: type[Contender], build: Options) -> Run:
        """A run with nothing measured yet."""
        return Run(
            dataset=self.data.name,
            fingerprint=self.data.fingerprint,
            classes=self.data.dense.classes,
            dim=self.data.dense.dim,
            contender=kind.name,
            revision=kind.revision,
            build=dict(build),
            threads=self.threads,
            machine=read_processor_name(),
            packages=read_versions(("shortlist", "onnxruntime", "numpy")),
        )

    def make_failure_key(self, run: Run) -> str:
        """The file that tells why a build failed, until it no longer does."""
        return self.make_key(run, {"failed": True})

    def make_key(self, run: Run, setting: Options | None = None) -> str:
        """The file of a run, or, without a setting, of the build's list of settings."""
        parts = [run.fingerprint, run.contender, run.build, run.threads, self.rows, list(self.batches)]
        parts += [run.revision] if run.revision else []
        return hash_parts(*parts, None if setting is None else dict(setting))


@contextmanager
def limit_threads(threads: int, *, own_threads: bool) -> Iterator[None]:
    """So many threads; where a contender's library has its own, one for numpy's products, which change its basis.

    The others of numpy's wait for work by spinning, and where they do that the peer's threads cannot run.
    """
    with (
        threadpool_limits(threads),
        ThreadpoolController().select(prefix=NUMPY_BLAS_PREFIX).limit(limits=1 if own_threads else threads),
    ):
        yield


def explain_absence(kind: type[Contender]) -> str | None:
    """Why a contender whose library is not installed was not run."""
    missing = [name for name in kind.needs if importlib.util.find_spec(name) is None]
    return f"not run: {', '.join(missing)} is not installed" if missing else None


def is_hopeless(run: Run) -> bool:
    """Whether the setting was so much slower than dense that dearer ones need not be tried."""
    return any(spent.speedup < HOPELESS_SPEEDUP for spent in run.spent.values())


def is_dearer(setting: Options, other: Options) -> bool:
    """Whether every value of `setting` is at least that of `other`: settings ask for more work as they rise."""
    return all(setting[name] >= value for name, value in other.items() if name in setting)


def make_topk_call(topk: Callable[[npt.NDArray[np.float32], int], IdArray]) -> Call:
    """Top K of a contender or of a spelling of dense, as a timed call."""
    return lambda rows: topk(rows, SWEEP_K)


def compare_times(contender: Timed, dense: Timed) -> Spent:
    """Times of a contender beside those of dense."""
    slow = contender.seconds >= SLOW_TIME_SHARE * np.median(dense.seconds)
    spent, beside = contender.summarize(), dense.summarize()
    return Spent(
        **spent,
        dense_mean=beside["mean"],
        dense_median=beside["median"],
        speedup=beside["mean"] / spent["mean"],
        slow_share=float(slow.mean()),
    )


def find_impossible_ids(ids: IdArray, data: DataSet) -> str | None:
    """A sentence when an answer cannot be right: an id out of range, of padding, or twice in a row."""
    if ((ids < -1) | (ids >= data.dense.classes)).any():
        return "answered ids that are no class"
    if np.isin(ids, data.dense.padded).any():
        return "answered rows of the weight that are padding"
    ordered = np.sort(ids, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        return "answered the same class twice for one row"
    return None


def measure_precision(ids: IdArray, true: IdArray) -> dict[int, Share]:
    """P@k by k with its interval, as `shortlist evaluate` gives it, of `ids` [n, m] against `true` [n, t]."""
    shares = {k: estimate_precision(ids, true, k) for k in choose_depths(true.shape[1])}
    return {k: Share(value=share.mean, low=share.low, high=share.high) for k, share in shares.items()}


def flag_run(run: Run) -> Run:
    """The run with a word for everything that a reader should know."""
    flags = []
    if run.repeat_ratio is not None and run.repeat_ratio < CACHED_TIME_SHARE:
        flags.append(f"remembers answers: asked again, it takes {run.repeat_ratio:.2f} of the time")
    if run.dense_share:
        flags.append(f"{run.dense_share:.0%} of rows answered by dense")
    if 1 in run.spent:
        flags += describe_slowness(run.spent[1])
    return run.model_copy(update={"flags": flags})
