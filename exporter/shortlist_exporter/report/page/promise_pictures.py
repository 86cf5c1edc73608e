"""Pictures of where a promise holds: precision by sample and document, and misses against the risk foretold."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from shortlist.evaluation.evaluator import BAND_MISSES

from shortlist_exporter.records.report import Domain, Figures

from .style import ACCENT, INK, MIN_MISSES, MUTED, SECOND, WIDTH_INCHES


def draw_domains(figures: Figures) -> Figure | None:
    """P@1 of every sample with its interval, its documents behind; none where there is one sample of one document."""
    samples = [one for one in figures.domains if 1 in one.precision]
    if len(samples) < 2 and not any(one.documents for one in samples):
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 1.1 + 0.55 * len(samples)))
    axes = figure.subplots()
    for height, one in enumerate(reversed(samples)):
        draw_domain(axes, one, height)
    axes.set_yticks(range(len(samples)), [f"{one.name}\n{one.rows:,} rows" for one in reversed(samples)], color=INK)
    axes.set_ylim(-0.6, len(samples) - 0.4)
    if 1 in figures.promise:
        axes.axvline(figures.promise[1], color=SECOND, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("P@1 with its 95 % interval; grey: single documents; dashed: promised")
    return figure


def draw_domain(axes: Axes, one: Domain, height: int) -> None:
    """One sample: its interval, and its documents, larger ones larger."""
    share, colour = one.precision[1], SECOND if one.broken else ACCENT
    sizes = [min(60, 4 + document.rows / 8) for document in one.documents]
    single = [document.p_at_1 for document in one.documents]
    axes.scatter(single, [height] * len(sizes), sizes, color=MUTED, alpha=0.35, linewidths=0)
    reach = [[share.mean - share.low], [share.high - share.mean]]
    axes.errorbar(share.mean, height, xerr=reach, fmt="o", color=colour, capsize=4, markersize=6)


def draw_risk(figures: Figures) -> Figure | None:
    """What rows of about equal risk missed, with the lines of half and twice as much; none without two bands."""
    asked = [(one.name, one.asked.bands) for one in figures.domains if one.asked is not None]
    bands = [(name, some) for name, some in asked if len(some) > 1]
    if not bands:
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 3.0))
    axes = figure.subplots()
    ends = np.array([min(b.risk for _, some in bands for b in some), max(b.risk for _, some in bands for b in some)])
    for factor, style in ((1, "-"), (0.5, ":"), (2, ":")):
        axes.plot(ends, factor * ends, color=MUTED, linewidth=1, linestyle=style)
    for (name, some), colour in zip(bands, cycle((ACCENT, SECOND, INK))):
        missed = [max(b.missed, MIN_MISSES) for b in some]
        axes.plot([b.risk for b in some], missed, "o-", color=colour, markersize=5, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"risk, mean of rows with {BAND_MISSES} expected misses together")
    axes.set_ylabel("best class missed")
    axes.legend(frameon=False)
    return figure
