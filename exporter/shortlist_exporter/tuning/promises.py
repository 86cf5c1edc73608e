"""Whether a measured head keeps a promise: surely, possibly, and by how much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from shortlist.errors import BadInput
from shortlist.evaluation.statistics import Share, estimate_share

from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.records.tuning import Promise, SplitFigures

MIN_SPLIT_ROWS = 30  # distinct rows of a split, under which no interval is to be trusted


def make_promise(pairs: Sequence[tuple[int, float]], **rest: object) -> Promise:
    """A promise of P@k for each (k, least); raises BadInput where two contradict each other or nothing is asked."""
    precision: dict[int, float] = {}
    for k, least in pairs:
        if precision.setdefault(k, least) != least:
            raise BadInput(f"P@{k} is asked to reach {precision[k]:g} and {least:g}: give one of them")
    if not precision:
        raise BadInput("nothing is promised: give --target-p1, --target-p5 or --target-pk")
    return Promise.model_validate({"precision": precision, **rest})


def check_promise(promise: Promise, dense: Dense, max_k: int | None) -> None:
    """Refuse what no head of this layer could keep; raises BadInput."""
    largest_k = max_k or dense.real_classes
    for k in promise.precision:
        if k > largest_k:
            raise BadInput(f"P@{k} is asked for but the head is to answer k up to {largest_k}: lower k or raise max_k")
    if promise.memory is not None and promise.memory < dense.weight.nbytes:
        raise BadInput(
            f"{format_mib(promise.memory)} MiB cannot hold even the weights, {format_mib(dense.weight.nbytes)} MiB in "
            "float32, that exact scores are taken from: raise --max-memory"
        )


def check_rows(promise: Promise, split: str, rows: int) -> None:
    """Raise BadInput where even answers without a miss on so few rows would not show that the promise is kept."""
    least = max(promise.precision.values())
    provable = compute_best_lower_bound(rows) if rows else 0.0
    few = f"the {split} split has {rows} distinct contexts, too few"
    if provable < least:
        raise BadInput(
            f"{few}: even without a miss the interval of P@k would begin at {provable:.4f}, under the {least:g} asked "
            "for; capture more text, or lower the target"
        )
    if rows < max(MIN_SPLIT_ROWS, promise.batch):
        raise BadInput(f"{few} for requests of {promise.batch}: capture more text, {MIN_SPLIT_ROWS} rows at least")


def compute_best_lower_bound(rows: int) -> float:
    """The lower bound of a head that made no mistake."""
    return estimate_share(np.ones(rows)).low


def choose_timed_k(promise: Promise) -> int:
    """The k that heads are asked for while they are measured."""
    return max(promise.precision)


def keeps_promise(promise: Promise, figures: SplitFigures, size: int, *, calibrated: bool = True) -> bool:
    """Whether every target is kept at the worse end of its 95 % interval.

    size: bytes of the bundle. calibrated: False leaves the log-probability error out, for a head whose tail is not yet
    set for its setting.
    """
    precise = all(figures.precision[k].low >= least for k, least in promise.precision.items())
    near = promise.logprob_error is None or figures.logprob_error_high <= promise.logprob_error
    return precise and fits_memory(promise, size) and (near or not calibrated)


def may_keep_promise(promise: Promise, figures: SplitFigures, size: int, slack: float = 1.0) -> bool:
    """Whether no interval rules the promise out, where `slack` times as many misses are let pass."""
    least_shares = {k: 1 - slack * (1 - least) for k, least in promise.precision.items()}
    return all(figures.precision[k].high >= least for k, least in least_shares.items()) and fits_memory(promise, size)


def fits_memory(promise: Promise, size: int) -> bool:
    """Whether the bundle is small enough."""
    return promise.memory is None or size <= promise.memory


def measure_margin(promise: Promise, figures: SplitFigures) -> float:
    """How far the least kept precision is over its target, in shares of the misses that the target allows."""
    return min((figures.precision[k].mean - least) / max(1 - least, 1e-9) for k, least in promise.precision.items())


def describe_promise(promise: Promise) -> str:
    """The promise in words, such as `P@1 >= 0.99, 120 MiB`."""
    parts = [f"P@{k} >= {least:g}" for k, least in sorted(promise.precision.items())]
    if promise.logprob_error is not None:
        parts.append(f"log-prob error <= {promise.logprob_error:g} nats")
    if promise.memory is not None:
        parts.append(f"{format_mib(promise.memory)} MiB")
    return ", ".join(parts)


def describe_shares(promise: Promise, figures: SplitFigures, *, calibrated: bool = True) -> str:
    """What a head reached in words: each precision with its lower bound, and the log-probability error with its upper.

    calibrated: as in `keeps_promise`.
    """
    parts = [f"P@{k} {describe_share(figures.precision[k])}" for k in sorted(promise.precision)]
    if promise.logprob_error is not None and calibrated:
        parts.append(f"log-prob error {figures.logprob_error:.2g} nats (at most {figures.logprob_error_high:.2g})")
    return ", ".join(parts)


def describe_share(precision: Share) -> str:
    """A share and the lower end of its interval."""
    return f"{precision.mean:.4f} (at least {precision.low:.4f})"


def format_mib(count: int) -> str:
    """A number of bytes in MiB (2^20 bytes), rounded to a whole number."""
    return f"{count / 2**20:,.0f}"
