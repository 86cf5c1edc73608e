"""What a soak prints: two tables, and a line of JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from .checks import OK, SoakResult, quantile_ms


def print_tables(result: SoakResult, factor: float) -> None:
    """The figures of the load, `factor` times the capacity, and what came of the faulty clients."""
    table = Table(title=f"{result.seconds:g} s at {factor:g} x the capacity", show_header=False)
    for name, value in format_figures(result).items():
        table.add_row(name, value)
    console = Console(width=120)
    console.print(table)
    clients = Table(title="clients that misbehave")
    for column in ("a client that", "times", "what it got", "neighbours harmed"):
        clients.add_column(column)
    for client in result.faulty_clients:
        outcomes = ", ".join(f"{count} x {name}" for name, count in client.outcomes.most_common())
        clients.add_row(client.name, str(client.outcomes.total()), outcomes, str(len(client.harms)))
    console.print(clients)


def format_figures(result: SoakResult) -> dict[str, str]:
    """The lines of the first table."""
    tally, (first, last) = result.tally, result.memory.ends
    statuses = ", ".join(f"{count:,} x {status}" for status, count in sorted(tally.statuses.items()))
    return {
        "capacity, closed loop": f"{result.capacity:,.0f} requests/s",
        "load, open loop": f"{result.sending_rate:,.0f} requests/s",
        "client late by, p99": f"{quantile_ms(tally.lags, 0.99):.1f} ms",
        "admitted": f"{result.goodput:,.0f} requests/s",
        "answers": f"{statuses or 'none'}, {tally.losses.total():,} lost",
        "wrong answers": f"{len(tally.wrong):,} of {tally.statuses[OK]:,} compared",
        "p50 of admitted": f"{tally.quantile_ms(0.5):.1f} ms",
        "p99 of admitted": f"{tally.quantile_ms(0.99):.1f} ms (deadline {result.deadline_ms:.0f} ms)",
        "share of the capacity": f"{result.goodput_share:.2f}",
        "p99 of /healthz": f"{result.health_p99_ms:.1f} ms",
        "memory after warm-up": f"{first:.1f} to {last:.1f} MiB ({result.memory.growth:+.1%})",
        "promised of memory": f"growth under {result.promises.growth:.0%}",
    }


def summarise_soak(result: SoakResult, bundle: Path, sentences: list[str]) -> dict[str, object]:
    """The JSON line; `sentences` are on the promises that were broken."""
    tally, (first, last) = result.tally, result.memory.ends
    return {
        "capacity_rps": round(result.capacity, 1),
        "sent_rps": round(result.sending_rate, 1),
        "admitted_rps": round(result.goodput, 1),
        "late_p99_ms": round_or_none(quantile_ms(tally.lags, 0.99)),
        "seconds": result.seconds,
        "requests": tally.total,
        "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
        "lost": tally.losses.total(),
        "wrong": len(tally.wrong),
        "p50_ms": round_or_none(tally.quantile_ms(0.5)),
        "p99_ms": round_or_none(tally.quantile_ms(0.99)),
        "deadline_ms": result.deadline_ms,
        "memory_first_mib": round(first, 1),
        "memory_last_mib": round(last, 1),
        "memory_growth": round(result.memory.growth, 4),
        "goodput_share": round(result.goodput_share, 3),
        "healthz_p99_ms": round_or_none(result.health_p99_ms),
        "harmed": sum(len(client.harms) for client in result.faulty_clients),
        "broken": sentences,
        "bundle": str(bundle),
    }


def round_or_none(value: float) -> float | None:
    """One decimal; null in JSON for what is no number."""
    return None if np.isnan(value) else round(value, 1)
