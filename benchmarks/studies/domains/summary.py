"""The study's figures together: a table, and the JSON line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table
from shortlist.evaluation.statistics import Share

from .contenders import OURS, Asked
from .inputs import WIKITEXT
from .measure import Finding, Pace, find_worst

Findings = Mapping[str, Mapping[str, Finding]]  # by contender, then by kind
Paces = Mapping[str, Mapping[str, Pace]]  # by contender, then by kind
COLUMNS = (
    "kind", "fitted on", "rows", "documents", "P@1", "P@5", "lost p<.1", ".1-.5", "p>=.5",
    "k = 1: us", "p99", "x dense", "k = 5: us", "p99", "x dense",
)  # fmt: skip


class Speeds(NamedTuple):
    """Times of calls of one k. paces: at batch 1. large: our times dense on WikiText by many rows."""

    paces: Paces
    large: float


def make_table(
    name: str, findings: Mapping[str, Finding], paces: Sequence[Mapping[str, Pace]], mixture: set[str]
) -> Table:
    """One contender's figures by kind, the worst P@1 first.

    paces: of one class and of five. mixture: kinds of which the shipped texts have others.
    """
    table = Table(title=name)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for kind in sorted(findings, key=lambda kind: findings[kind].p1.mean):
        finding = findings[kind]
        table.add_row(
            kind,
            "others" if kind in mixture else "none",
            f"{finding.rows:,}",
            str(finding.documents),
            format_interval(finding.p1),
            format_interval(finding.p5),
            *(f"{count:.2f}" for count in finding.lost),
            *(text for one in paces for text in format_pace(one[kind])),
        )
    return table


def format_interval(share: Share) -> str:
    """A share and its interval."""
    return f"{share.mean:.4f} [{share.low:.4f}, {share.high:.4f}]"


def format_pace(pace: Pace) -> tuple[str, str, str]:
    """Mean and 99th percentile in microseconds, and times dense."""
    return f"{pace.mean:,.0f}", f"{pace.p99:,.0f}", f"{pace.times_dense:.1f}"


def find_best_peer(peers: list[Asked], paces: Paces) -> str | None:
    """The fastest peer on WikiText of those that find enough there."""
    precise = [peer.name for peer in peers if peer.reaches]
    return max(precise, key=lambda name: paces[name][WIKITEXT].times_dense, default=None)


def summarize(findings: Findings, one: Speeds, five: Speeds, peer: str | None) -> dict[str, float | str | None]:
    """The JSON line. one, five: of k = 1 and 5. peer: the best one."""
    ours, paces = findings[OURS], one.paces
    worst = find_worst(ours, lambda finding: finding.p1.mean)
    return {
        "worst_p1": round(ours[worst].p1.mean, 5),
        "worst_p5": round(min(finding.p5.mean for finding in ours.values()), 5),
        "worst_kind": worst,
        "lost_sure": round(max(finding.lost[-1] for finding in ours.values()), 3),
        **summarize_speeds(one, ""),
        **summarize_speeds(five, "_5"),
        "best_peer_worst_p1": peer and round(min(finding.p1.mean for finding in findings[peer].values()), 5),
        "best_peer_speedup": peer and round(paces[peer][WIKITEXT].times_dense, 2),
        "best_peer_speedup_5": peer and round(five.paces[peer][WIKITEXT].times_dense, 2),
        "best_peer": peer,
        "kinds": len(ours),
        "kinds_under": sum(finding.p1.mean < 0.99 or finding.p5.mean < 0.98 for finding in ours.values()),
    }


def summarize_speeds(speeds: Speeds, suffix: str) -> dict[str, float]:
    """Our times dense of one k, by names that end with `suffix`."""
    pace = speeds.paces[OURS]
    figures = {
        "speedup_wiki": pace[WIKITEXT].times_dense,
        "speedup_worst": min(one.times_dense for one in pace.values()),
        "speedup_b32": speeds.large,
        "p99_wiki": pace[WIKITEXT].p99_times_dense,
        "p99_worst": min(one.p99_times_dense for one in pace.values()),
    }
    return {f"{name}{suffix}": round(value, 2) for name, value in figures.items()}
