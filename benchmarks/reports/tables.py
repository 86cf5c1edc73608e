"""Tables in Markdown that are made of runs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.common.runs import SLOW_CALLS_REMARK, Run, Share, describe_slowness

PRECISION_LEVELS = (0.95, 0.99, 0.999)  # of P@1, at which contenders are compared
TABLE_HEAD = (
    "| contender | threads | P@1 | P@5 | P@10 "
    "| total, ms | us, median | p99 | times dense | MiB | build, s | remarks |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|\n"
)
FRONT_HEAD = (
    "| contender | P@1 | P@5 | P@10 | us, median | p99 | times dense | MiB |\n|---|---|---|---|---|---|---|---|\n"
)


def select_usable_runs(runs: Sequence[Run], k: int, batch: int) -> list[Run]:
    """Runs with P@k and with times at `batch`."""
    return [run for run in runs if run.error is None and k in run.precision and batch in run.spent]


def select_single_row_runs(runs: Sequence[Run]) -> list[Run]:
    """Runs at batch 1 on one thread, those without times (failures) included."""
    return [run for run in runs if run.threads == 1 and (not run.spent or list(run.spent) == [1])]


def find_pareto_front(runs: Sequence[Run], k: int = 1, batch: int = 1) -> list[Run]:
    """Runs that no other one beats in both P@k and speed-up; fastest first."""
    ordered = sorted(
        select_usable_runs(runs, k, batch), key=lambda run: (-run.spent[batch].speedup, -run.precision[k].value)
    )
    front: list[Run] = []
    for run in ordered:
        if not front or run.precision[k].value > front[-1].precision[k].value:
            front.append(run)
    return front


def find_fastest_runs(runs: Sequence[Run], level: float) -> dict[str, Run]:
    """Contender -> its fastest run at batch 1 on one thread whose P@1 is at least `level`; fastest contender first."""
    fastest_first = sorted(
        select_usable_runs(select_single_row_runs(runs), 1, 1), key=lambda run: -run.spent[1].speedup
    )
    fastest: dict[str, Run] = {}
    for run in fastest_first:
        if run.precision[1].value >= level:
            fastest.setdefault(run.contender, run)
    return fastest


def find_fastest_precise_runs(runs: Sequence[Run]) -> list[Run]:
    """Each contender's fastest run at every level of `PRECISION_LEVELS`, each run once."""
    fastest = [run for level in PRECISION_LEVELS for run in find_fastest_runs(runs, level).values()]
    return list({run.label: run for run in fastest}.values())


def find_most_precise_runs(runs: Sequence[Run]) -> list[Run]:
    """The most precise run of each contender that reaches no level of `PRECISION_LEVELS`; of equals the fastest."""
    fast_contenders = {run.contender for run in find_fastest_precise_runs(runs)}
    precise_last = sorted(
        select_usable_runs(runs, 1, 1), key=lambda run: (run.precision[1].value, run.spent[1].speedup)
    )
    return list({run.contender: run for run in precise_last if run.contender not in fast_contenders}.values())


def format_table(runs: Sequence[Run], batch: int = 1) -> str:
    """One line a run: precision with its 95 % interval, time of all calls and of one, speed-up, memory, build time."""
    return TABLE_HEAD + "".join(format_row(run, batch) for run in runs)


def format_row(run: Run, batch: int) -> str:
    if run.error is not None:
        return f"| {run.label} | {run.threads} | - | - | - | - | - | - | - | - | - | {run.error} |\n"
    times = run.spent[batch]
    cells = [
        run.label,
        run.threads,
        *(format_interval(run.precision.get(k)) for k in (1, 5, 10)),
        f"{times.mean * (run.rows // batch) / 1000:,.0f}",
        f"{times.median:,.0f}",
        f"{times.p99:,.0f}",
        f"{times.speedup:.2f}",
        f"{run.bytes / 2**20:,.0f}",
        f"{run.build_seconds:,.0f}",
        "; ".join(collect_remarks(run, batch)) or " ",
    ]
    return format_cells(cells)


def collect_remarks(run: Run, batch: int) -> list[str]:
    """The run's flags; the one about slow calls, which is of batch 1, is replaced by that of `batch`."""
    return [flag for flag in run.flags if SLOW_CALLS_REMARK not in flag] + describe_slowness(run.spent[batch])


def format_front(runs: Sequence[Run]) -> str:
    """The Pareto front at batch 1 on one thread as a narrow table: shares without intervals, times in us."""
    lines = [FRONT_HEAD]
    for run in find_pareto_front(select_single_row_runs(runs)):
        batch_times = run.spent[1]
        shares = [format_share(run.precision[k].value, 4) for k in (1, 5, 10)]
        times = [f"{batch_times.median:,.0f}", f"{batch_times.p99:,.0f}", f"{batch_times.speedup:.1f}"]
        lines.append(format_cells([run.label, *shares, *times, f"{run.bytes / 2**20:,.0f}"]))
    return "".join(lines)


def format_levels(sets: Mapping[str, Sequence[Run]]) -> str:
    """A line a contender, and for each data set its largest speed-up at every P@1 of `PRECISION_LEVELS`.

    Contenders are in the order of the first data set's speed-ups at the second level, then at the first.
    """
    columns = [(name, level) for name in sets for level in PRECISION_LEVELS]
    fastest = {column: find_fastest_runs(sets[column[0]], column[1]) for column in columns}
    names = {run.contender for runs in sets.values() for run in select_usable_runs(select_single_row_runs(runs), 1, 1)}
    speedups = {
        name: [fastest[column][name].spent[1].speedup if name in fastest[column] else 0.0 for column in columns]
        for name in names
    }
    titles = [f"{name}, P@1 {format_share(level, 3).rstrip('0')}" for name, level in columns]
    lines = [format_cells(["contender", *titles]), "|---" * (1 + len(columns)) + "|\n"]
    for name in sorted(names, key=lambda name: (-speedups[name][1], -speedups[name][0], name)):
        lines.append(format_cells([name, *(f"{value:.1f}" if value else "-" for value in speedups[name])]))
    return "".join(lines)


def format_cells(cells: Sequence[object]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |\n"


def format_interval(share: Share | None) -> str:
    """A share with its interval, as in ".9927 (.991-.994)"; a dash for None."""
    if share is None:
        return "-"
    return f"{format_share(share.value, 4)} ({format_share(share.low, 3)}-{format_share(share.high, 3)})"


def format_share(value: float, places: int) -> str:
    """A share without its leading zero, as in ".99"."""
    text = f"{value:.{places}f}"
    return text[1:] if text.startswith("0") else text
