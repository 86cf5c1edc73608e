"""Colours and sizes of a report's pictures."""

from __future__ import annotations

from typing import Any

WIDTH_INCHES = 7.6  # inches; the page scales
INK, MUTED, GRID, ACCENT, SECOND = "#1f2329", "#667080", "#dfe3e8", "#0f766f", "#c2420d"
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", ACCENT: "--accent", SECOND: "--second"}
STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9, "axes.labelsize": 9, "axes.titlesize": 9, "axes.titlelocation": "left",
    "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "svg.fonttype": "none", "svg.hashsalt": "shortlist", "figure.constrained_layout.use": True,
}  # fmt: skip
MIN_MISSES = 5e-5  # misses that the axis still tells from none
