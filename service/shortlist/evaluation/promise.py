"""What an export measured and promised, and whether figures on other contexts keep it."""

from __future__ import annotations

from shortlist.bundle.manifest import Quality

from . import statistics
from .statistics import PRECISION_DEPTHS, Share


def read_promise(quality: Quality | None, depth: int) -> dict[int, float] | None:
    """P@k of the manifest, by k up to `depth`."""
    if quality is None:
        return None
    shares = (quality.p_at_1, quality.p_at_5, quality.p_at_10)
    return {k: share for k, share in zip(PRECISION_DEPTHS, shares, strict=True) if k <= depth}


def warn_of_promise(
    precision: dict[int, Share] | None,
    promised: dict[int, float] | None,
    promise_rows: int,
    in_force: float | None = None,
) -> str | None:
    """One sentence where even the upper bound on these contexts is too low; None else.

    That is, where it is below the lower bound of what the export measured on `promise_rows` held-out contexts, whose
    error is that of so few, or below the promise in force.
    """
    shares, least = precision or {}, in_force or 0.0
    falls = [
        f"P@{k} is {share.mean:.4f} here, lower than the {promised[k]:.4f} promised"
        for k, share in shares.items()
        if promised is not None and share.high < statistics.bound_mean(promised[k], promise_rows).low
    ]
    breaches = [f"P@{k} is {share.mean:.4f}" for k, share in shares.items() if share.high < least]
    unlike = "these contexts are not like those that the bundle was measured on"
    sentences = [f"{unlike}: {', '.join(falls)}"] if falls else []
    sentences += (
        [f"the head searches for {least:g} and does not keep it here: {', '.join(breaches)}"] if breaches else []
    )
    return "; ".join(sentences) or None
