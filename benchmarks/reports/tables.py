"""Runs as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.common.runs import AS_SLOW, Run, Share, slowness


def front(runs: Sequence[Run], k: int = 1, batch: int = 1) -> list[Run]:
    """The Pareto front: runs that no other one beats in both P@k and speed-up; fastest first."""
    ordered = sorted(usable(runs, k, batch), key=lambda run: (-run.spent[batch].speedup, -run.precision[k].value))
    kept: list[Run] = []
    for run in ordered:
        if not kept or run.precision[k].value > kept[-1].precision[k].value:
            kept.append(run)
    return kept


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


def usable(runs: Sequence[Run], k: int, batch: int) -> list[Run]:
    """Runs with a precision and a time."""
    return [run for run in runs if run.error is None and k in run.precision and batch in run.spent]


def table(runs: Sequence[Run], batch: int = 1) -> str:
    """One line a run: precision with its 95 % interval, time of all calls and of one, speed-up, memory, build time."""
    head = (
        "| contender | threads | P@1 | P@5 | P@10 "
        "| total, ms | us, median | p99 | times dense | MiB | build, s | remarks |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(line(run, batch) for run in runs)


def line(run: Run, batch: int) -> str:
    """One row of `table`."""
    if run.error is not None:
        return f"| {run.label} | {run.threads} | - | - | - | - | - | - | - | - | - | {run.error} |\n"
    spent = run.spent[batch]
    cells = [
        run.label,
        run.threads,
        *(interval(run.precision.get(k)) for k in (1, 5, 10)),
        f"{spent.mean * (run.rows // batch) / 1000:,.0f}",
        f"{spent.median:,.0f}",
        f"{spent.p99:,.0f}",
        f"{spent.speedup:.2f}",
        f"{run.bytes / 2**20:,.0f}",
        f"{run.build_seconds:,.0f}",
        "; ".join(remarks(run, batch)) or " ",
    ]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def remarks(run: Run, batch: int) -> list[str]:
    """The run's flags, of which the one that tells of slow calls (at batch 1) is told for `batch`."""
    return [flag for flag in run.flags if AS_SLOW not in flag] + slowness(run.spent[batch])


def interval(share: Share | None) -> str:
    """.9927 (.991-.994)."""
    if share is None:
        return "-"
    return f"{digits(share.value, 4)} ({digits(share.low, 3)}-{digits(share.high, 3)})"


def digits(value: float, places: int) -> str:
    """A share without its leading zero."""
    text = f"{value:.{places}f}"
    return text[1:] if text.startswith("0") else text
