"""Fit one contender on one data set, sweep its settings, and measure a run for each setting.

What keeps the measurements honest:

- precision is read off the timed calls themselves, against stored exact answers;
- rows are distinct, held out, in random order, and never repeated: every pass scales them by another factor near 1;
- the dense layer runs in the same blocks, with the same threads and batch;
- impossible answers are an error; answers that come faster the second time, calls as slow as dense, and rows that
  the contender handed to the dense layer are flagged.
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
from shortlist.evaluation.ranking import TrueClasses
from shortlist.evaluation.statistics import choose_depths, estimate_precision
from shortlist.evaluation.timing import (
    Call,
    CallTimes,
    find_fastest,
    rescale_rows,
    time_call,
    time_calls,
)
from shortlist.runtime.processor import read_processor_name
from threadpoolctl import ThreadpoolController, threadpool_limits

from benchmarks.common.dense import open_spellings
from benchmarks.common.runs import (
    BatchTimes,
    Run,
    Share,
    Store,
    describe_slowness,
    hash_parts,
    read_versions,
)
from benchmarks.contenders.registry import Contender, Options
from benchmarks.datasets.registry import DataSet

SWEEP_K = 10
SWEEP_BATCHES = (1, 8, 32, 128)
REPEATED_ROWS = 200  # rows that are given twice
CACHED_TIME_SHARE = 0.5  # a repeated row that takes less than this share of a new one's time was cached
SLOW_TIME_SHARE = 0.9  # of dense's median
MIN_RUN_SPEEDUP = 0.5  # a speed-up under which dearer settings are not tried
DENSE_INTERVAL = 5  # of single rows, dense times every fifth alone: it would take most of the time
NUMPY_BLAS_PREFIX = "libscipy_openblas"  # the library of numpy's wheels; other BLAS libraries may be shared with peers
CONTENDER_ERRORS = (ImportError, RuntimeError, ValueError, MemoryError, OSError, AssertionError)


@dataclass
class Harness:
    """Measures contenders on one data set beside its dense layer; runs are kept in `store`.

    rows: how many are timed at each batch size. seen: how many passes the contender has made so far; each scales its
    rows by another factor. dense: the fastest dense call by batch size, once it was chosen.
    """

    data: DataSet
    store: Store
    threads: int = 1
    rows: int = 2048
    batches: tuple[int, ...] = (1,)
    passes: int = 0
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
        """The stored run of one setting, or None."""
        value = self.store.read(self.make_key(self.make_run(kind, build), setting))
        return None if value is None else Run.model_validate(value)

    def run_settings(self, kind: type[Contender], build: Options, settings: Sequence[Options]) -> list[Run]:
        """The runs of these settings; the contender is fitted only where one of them is not stored."""
        runs = [run for setting in settings if (run := self.read_run(kind, build, setting))]
        return runs if len(runs) == len(settings) else list(self.sweep(kind, build, settings))

    def sweep(self, kind: type[Contender], build: Options, settings: Sequence[Options] = ()) -> Iterator[Run]:
        """Yield the run of every setting of one build, or of `settings`; stored runs are not measured again."""
        base = self.make_run(kind, build)
        if why := explain_absence(kind):
            yield base.model_copy(update={"error": why})
            return
        record = None if settings else self.store.read(self.make_key(base))
        if record is not None:
            runs = [self.store.read(self.make_key(base, setting)) for setting in record["settings"]]
            if all(value is not None for value in runs):
                yield from (Run.model_validate(value) for value in runs)
                return
        try:
            with limit_threads(self.threads, own_threads=kind.own_threads):
                yield from self.measure(kind(build, self.threads), base, settings)
        except CONTENDER_ERRORS as error:
            run = base.model_copy(update={"error": f"failed: {type(error).__name__}: {error}"[:300]})
            self.store.write(self.make_failure_key(base), run.model_dump(mode="json"))
            yield run
        else:
            self.store.drop(self.make_failure_key(base))

    def measure(self, contender: Contender, base: Run, subset: Sequence[Options]) -> Iterator[Run]:
        """Fit the contender, then yield the run of every setting, or of every one in `subset`."""
        self.passes = 0
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
        """The run of a setting: the stored one, else one that is measured and stored now."""
        content = self.store.read(self.make_key(base, setting))
        if content is not None:
            return Run.model_validate(content)
        contender.use(setting)
        run = self.measure_setting(contender, base.model_copy(update={"setting": setting}))
        self.store.write(self.make_key(base, setting), run.model_dump(mode="json"))
        return run

    def measure_setting(self, contender: Contender, run: Run) -> Run:
        """`run` with precision, times and flags of the contender at its present setting."""
        times: dict[int, BatchTimes] = {}
        precision: dict[int, Share] = {}
        rows = 0
        for batch in self.batches:
            both = self.time_beside_dense(contender, batch)
            ids = both["contender"].ids
            impossible = find_impossible_ids(ids, self.data)
            if impossible:
                return run.model_copy(update={"error": impossible})
            if not precision:
                precision, rows = measure_precision(ids, self.data.test.best.first_rows(len(ids))), len(ids)
            times[batch] = compare_times(both["contender"], both["dense"])
        candidates = self.count_candidates(contender)
        update = {
            "rows": rows,
            "precision": precision,
            "spent": times,
            "scored_mean": None if candidates is None else float(candidates.mean()),
            "dense_share": None if candidates is None else float((candidates == self.data.dense.classes).mean()),
            "repeat_ratio": self.measure_repeat_ratio(contender),
        }
        return flag_run(run.model_copy(update=update))

    def time_beside_dense(self, contender: Contender, batch: int) -> dict[str, CallTimes]:
        """Time the contender and dense in turn, over rows that neither was given before."""
        self.passes += 1
        rows = rescale_rows(self.data.test.contexts[: max(self.rows, batch)], self.passes)
        calls = {"contender": make_topk_call(contender.topk), "dense": self.choose_dense_call(batch)}
        return time_calls(calls, rows, batch, every={"dense": DENSE_INTERVAL if batch == 1 else 1})

    def count_candidates(self, contender: Contender) -> npt.NDArray[np.int32] | None:
        """How many classes the contender says it scored for each of the first rows; None where it does not say."""
        rows = self.data.test.contexts[:REPEATED_ROWS]
        parts = [contender.count_candidates(rows[i : i + 1], SWEEP_K) for i in range(len(rows))]
        return np.concatenate([part for part in parts if part is not None]) if parts[0] is not None else None

    def measure_repeat_ratio(self, contender: Contender) -> float:
        """The median time of rows that were given before, over that of as many new rows."""
        self.passes += 1
        count = min(REPEATED_ROWS, len(self.data.test.contexts) // 2)
        rows = rescale_rows(self.data.test.contexts[: 2 * count], self.passes)
        old, new = rows[:count], rows[count:]
        call = make_topk_call(contender.topk)
        for row in old:
            call(row[None])
        again = [time_call(call, row[None])[0] for row in old]
        first = [time_call(call, row[None])[0] for row in new]
        return float(np.median(again) / np.median(first))

    def make_run(self, kind: type[Contender], build: Options) -> Run:
        """A run of one build in which nothing is measured yet."""
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
        """The key under which the store keeps why a build failed."""
        return self.make_key(run, {"failed": True})

    def make_key(self, run: Run, setting: Options | None = None) -> str:
        """The key under which the store keeps a run, or, without a setting, the build's list of settings."""
        parts = [run.fingerprint, run.contender, run.build, run.threads, self.rows, list(self.batches)]
        parts += [run.revision] if run.revision else []
        return hash_parts(*parts, None if setting is None else dict(setting))


@contextmanager
def limit_threads(threads: int, *, own_threads: bool) -> Iterator[None]:
    """Limit all libraries to `threads`; with `own_threads`, numpy's products, which change the basis, get one thread.

    A library with threads of its own cannot use the cores on which numpy's idle threads spin while they wait for work.
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
    """Whether the run was so much slower than dense that dearer settings need not be tried."""
    return any(times.speedup < MIN_RUN_SPEEDUP for times in run.spent.values())


def is_dearer(setting: Options, other: Options) -> bool:
    """Whether every value of `setting` is at least that of `other`: settings ask for more work as they rise."""
    return all(setting[name] >= value for name, value in other.items() if name in setting)


def make_topk_call(topk: Callable[[npt.NDArray[np.float32], int], IdArray]) -> Call:
    """A timed call for the best `SWEEP_K` classes by a contender or by a spelling of the dense layer."""
    return lambda rows: topk(rows, SWEEP_K)


def compare_times(contender: CallTimes, dense: CallTimes) -> BatchTimes:
    """Summarise the times of a contender beside those of the dense layer."""
    slow = contender.seconds >= SLOW_TIME_SHARE * np.median(dense.seconds)
    figures, beside = contender.summarize(), dense.summarize()
    return BatchTimes(
        **figures,
        dense_mean=beside["mean"],
        dense_median=beside["median"],
        speedup=beside["mean"] / figures["mean"],
        slow_share=float(slow.mean()),
    )


def find_impossible_ids(ids: IdArray, data: DataSet) -> str | None:
    """Say what is wrong where ids cannot be right: out of range, of padding, or twice in a row; None where all can."""
    if ((ids < -1) | (ids >= data.dense.classes)).any():
        return "answered ids that are no class"
    if np.isin(ids, data.dense.padded).any():
        return "answered rows of the weight that are padding"
    rows = np.sort(ids, axis=1)
    if ((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)).any():
        return "answered the same class twice for one row"
    return None


def measure_precision(ids: IdArray, true: TrueClasses) -> dict[int, Share]:
    """P@k by k with its interval, as `shortlist evaluate` gives it, of `ids` [n, m] against the `true` classes."""
    shares = {k: estimate_precision(ids, true, k) for k in choose_depths(true.ids.shape[1])}
    return {k: Share(value=share.mean, low=share.low, high=share.high) for k, share in shares.items()}


def flag_run(run: Run) -> Run:
    """The run with a remark for everything that makes its figures doubtful."""
    flags = []
    if run.repeat_ratio is not None and run.repeat_ratio < CACHED_TIME_SHARE:
        flags.append(f"remembers answers: asked again, it takes {run.repeat_ratio:.2f} of the time")
    if run.dense_share:
        flags.append(f"{run.dense_share:.0%} of rows answered by dense")
    if 1 in run.spent:
        flags += describe_slowness(run.spent[1])
    return run.model_copy(update={"flags": flags})
