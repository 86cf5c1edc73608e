"""Figures as `evaluate` and `diff` print them: one `name   text` line each."""

from __future__ import annotations

from shortlist.evaluation.statistics import Share, Summary

NAME_WIDTH = 28  # characters
Line = tuple[str, str]


def format_line(line: Line) -> str:
    """Format a name and its text, the texts of all lines one below the other."""
    name, text = line
    return f"{name:<{NAME_WIDTH}} {text}"


def format_share(share: Share) -> str:
    """Format a share with its 95 % interval."""
    return f"{share.mean:.4f} ({share.low:.4f} to {share.high:.4f})"


def format_summary(summary: Summary) -> str:
    """Format a summary as `mean ..., p99 ...`."""
    return ", ".join(f"{name} {value:.4g}" for name, value in summary.items())
