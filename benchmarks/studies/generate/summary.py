"""The tables and the JSON line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from .same import BOUNDED, DENSE, EXACT, PROMISES, Finding, name_promise
from .speed import CEILING, OURS, UNTOUCHED, Cell, Pace

LISTED_DIFFERENCES = 40  # of a contender, at most


@dataclass(frozen=True)
class Result:
    """What was measured of one model."""

    paces: dict[Cell, Pace]
    findings: dict[str, Finding]
    sampling: dict[float, float]


def make_pace_table(name: str, paces: Mapping[Cell, Pace]) -> Table:
    """Tokens a second of every cell."""
    table = Table(title=f"{name}: tokens a second, float32", title_justify="left")
    for column in ("", UNTOUCHED, OURS, CEILING, f"{OURS} / {UNTOUCHED}", f"{OURS} / {CEILING}"):
        table.add_column(column, justify="right" if column else "left")
    for cell, pace in paces.items():
        tokens = (f"{pace.tokens[one]:.1f}" for one in (UNTOUCHED, OURS, CEILING))
        table.add_row(cell.label, *tokens, f"{pace.ratio:.2f}", f"{pace.ceiling_share:.3f}")
    return table


def describe_findings(findings: Mapping[str, Finding]) -> list[str]:
    """A line for each contender, and for each difference of exact answers."""
    lines = []
    for name, finding in findings.items():
        lines.append(f"{name}: {finding.share:.1%} of the continuations are the model's own")
        if name in (EXACT, BOUNDED, DENSE):
            lines += [
                f"  {one.kind}, prompt {one.prompt}: other from token {one.place} on, margin {one.margin:.2g} nats"
                for one in finding.differences[:LISTED_DIFFERENCES]
            ]
    return lines


def summarize(results: Mapping[str, Result]) -> dict[str, Any]:
    """The figures of the JSON line; of the models that were measured."""
    figures: dict[str, Any] = {}
    for name, result in results.items():
        if result.paces:
            figures[f"{name}_ceiling_share"] = round(min(one.ceiling_share for one in result.paces.values()), 3)
            figures[f"{name}_ratio"] = round(median(one.ratio for one in result.paces.values()), 2)
        figures |= summarize_findings(name, result.findings)
        if result.sampling:
            figures["sampling_ratio"] = round(max(result.sampling.values()), 2)
    return figures


def summarize_findings(name: str, findings: Mapping[str, Finding]) -> dict[str, Any]:
    """Shares of continuations; `greedy_same` and those of promises are of the first model alone."""
    if not findings:
        return {}
    shares = {f"{name}_{short}_same": findings[one].share for one, short in ((EXACT, "exact"), (DENSE, "beam"))}
    shares[f"{name}_bounded_beam_same"] = findings[BOUNDED].share
    promised = [findings[name_promise(promise)].share for promise in PROMISES]
    names = ("greedy_same", "greedy_same_999")
    prefix = "" if name == "smollm2" else f"{name}_"
    return {one: round(share, 4) for one, share in shares.items()} | {
        f"{prefix}{one}": round(share, 4) for one, share in zip(names, promised, strict=True)
    }
