"""The study's figures together: a table, and the JSON line."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from shortlist.evaluation.statistics import Share

from .contenders import OURS, Asked
from .inputs import WIKITEXT
from .measure import Finding, Pace, find_worst

Findings = Mapping[str, Mapping[str, Finding]]  # by contender, then by kind
Paces = Mapping[str, Mapping[str, Pace]]  # by contender, then by kind
COLUMNS = (
    "kind", "fitted on", "rows", "documents", "P@1", "P@5", "lost p<.1", ".1-.5", "p>=.5", "us", "p99", "x dense",
)  # fmt: skip


def make_table(name: str, findings: Mapping[str, Finding], paces: Mapping[str, Pace], mixture: set[str]) -> Table:
    """One contender's figures by kind, the worst P@1 first. mixture: kinds of which the shipped texts have others."""
    table = Table(title=name)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for kind in sorted(findings, key=lambda kind: findings[kind].p1.mean):
        finding, pace = findings[kind], paces[kind]
        table.add_row(
            kind,
            "others" if kind in mixture else "none",
            f"{finding.rows:,}",
            str(finding.documents),
            format_interval(finding.p1),
            format_interval(finding.p5),
            *(f"{count:.2f}" for count in finding.lost),
            f"{pace.mean:,.0f}",
            f"{pace.p99:,.0f}",
            f"{pace.times_dense:.1f}",
        )
    return table


def format_interval(share: Share) -> str:
    """A share and its interval."""
    return f"{share.mean:.4f} [{share.low:.4f}, {share.high:.4f}]"


def find_best_peer(peers: list[Asked], paces: Paces) -> str | None:
    """The fastest peer on WikiText of those that find enough there."""
    precise = [peer.name for peer in peers if peer.reaches]
    return max(precise, key=lambda name: paces[name][WIKITEXT].times_dense, default=None)


def summarize(findings: Findings, paces: Paces, batch_32: float, peer: str | None) -> dict[str, float | str | None]:
    """The JSON line. batch_32: our times dense at batch 32 on WikiText. peer: the best one."""
    ours, pace = findings[OURS], paces[OURS]
    worst = find_worst(ours, lambda finding: finding.p1.mean)
    return {
        "worst_p1": round(ours[worst].p1.mean, 5),
        "worst_p5": round(min(finding.p5.mean for finding in ours.values()), 5),
        "worst_kind": worst,
        "lost_sure": round(max(finding.lost[-1] for finding in ours.values()), 3),
        "speedup_wiki": round(pace[WIKITEXT].times_dense, 2),
        "speedup_worst": round(min(one.times_dense for one in pace.values()), 2),
        "speedup_b32": round(batch_32, 2),
        "best_peer_worst_p1": peer and round(min(finding.p1.mean for finding in findings[peer].values()), 5),
        "best_peer_speedup": peer and round(paces[peer][WIKITEXT].times_dense, 2),
        "best_peer": peer,
        "p99_wiki": round(pace[WIKITEXT].p99_times_dense, 2),
        "p99_worst": round(min(one.p99_times_dense for one in pace.values()), 2),
        "kinds": len(ours),
        "kinds_under": sum(finding.p1.mean < 0.99 or finding.p5.mean < 0.98 for finding in ours.values()),
    }
