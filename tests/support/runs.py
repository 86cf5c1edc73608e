"""Runs of the benchmarks with made-up figures."""

from benchmarks.common.runs import BatchTimes, Run, Share


def make_run(p1, speedup, **fields):
    """A run at batch 1 with this precision at every k and a mean of 10 us."""
    times = BatchTimes(
        mean=10, median=9, p99=20, dense_mean=10 * speedup, dense_median=9, speedup=speedup, slow_share=0
    )
    precision = {k: Share(value=p1, low=p1 - 0.01, high=min(1, p1 + 0.01)) for k in (1, 5, 10)}
    defaults = {"dataset": "d", "fingerprint": "f", "contender": "c", "build": {}, "threads": 1}
    return Run(precision=precision, spent={1: times}, **defaults | fields)
