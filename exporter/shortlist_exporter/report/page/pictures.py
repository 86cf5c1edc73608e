"""Pictures of a report's figures, each as a PNG on white and as an SVG whose colours the page chooses."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from shortlist_exporter.records.report import Figures, Point
from shortlist_exporter.report.pareto_front import find_front

from .labels import write_beside
from .promise_pictures import draw_domains, draw_risk
from .style import ACCENT, INK, MIN_MISSES, MUTED, SECOND, STYLE, VARIABLES, WIDTH_INCHES

P1_TICKS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
MARKS = {
    "this head": ("o", ACCENT, 9),
    "its options": ("o", ACCENT, 5),
    "dense": ("s", SECOND, 7),
    "tried": (".", MUTED, 5),
}


@dataclass(frozen=True)
class Picture:
    """svg: an element for the page. png: a file."""

    svg: str
    png: bytes


def draw_pictures(figures: Figures) -> dict[str, Picture]:
    """Name -> picture, of every section that there is something to draw for."""
    with mpl.rc_context(STYLE):
        drawings = {name: draw(figures) for name, draw in DRAWERS.items()}
        return {name: save_picture(figure) for name, figure in drawings.items() if figure is not None}


def save_picture(figure: Figure) -> Picture:
    """`figure` as an SVG element and as a PNG file."""
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    figure.savefig(png, format="png", dpi=160, facecolor="white")
    return Picture(theme_svg(svg.getvalue()), png.getvalue())


def theme_svg(svg: str) -> str:
    """The svg element alone, as wide as its place, in the page's colours and font."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    for colour, variable in VARIABLES.items():
        element = element.replace(colour, f"var({variable})")
    return element


def draw_precision(figures: Figures) -> Figure | None:
    """P@1 against time and against multiply-adds, the front drawn through."""
    points = [*(figures.tried.points if figures.tried else []), *figures.measured.points]
    precise = [point for point in points if 1 in point.precision]
    points_by_time = [point for point in precise if point.times_dense]
    points_by_cost = [point for point in precise if point.macs]
    if len(precise) < 2:
        return None
    sides = [
        side
        for side in ((points_by_time, time_of, TIME_LABEL), (points_by_cost, cost_of, COST_LABEL))
        if len(side[0]) > 1
    ]
    figure = Figure(figsize=(WIDTH_INCHES, 3.4))
    row = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for axes, (side_points, x, label) in zip(row, sides, strict=True):
        plot_points(axes, side_points, x)
        axes.set_xlabel(label)
    draw_promise(row[0], figures)
    row[0].set_ylabel("P@1, stretched towards 1")
    stretch_axis(row[0], [point.precision[1] for point in precise] + [figures.promise.get(1, 1.0)])
    for axes, (side_points, x, _) in zip(row, sides, strict=True):
        write_beside(axes, [label_point(point, x) for point in side_points if point.kind != "tried"])
    return figure


def label_point(point: Point, x: Callable[[Point], float]) -> tuple[float, float, str, str]:
    """A point's place on the axes, its label, and the label's colour."""
    return x(point), stretch_precision(point.precision[1]), point.label, INK if point.kind == "this head" else MUTED


COARSE_TICKS, FINE_TICKS = (1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
FINE_RANGE = 4  # largest over least value up to which an axis has fine ticks
TIME_LABEL = "time of one row, dense = 1"
COST_LABEL = "multiply-adds of one row, dense = 1"


def time_of(point: Point) -> float:
    """A point's time as a share of dense's."""
    assert point.times_dense is not None
    return 1 / point.times_dense


def cost_of(point: Point) -> float:
    """A point's multiply-adds as a share of dense's."""
    assert point.macs is not None
    return point.macs


def plot_points(axes: Axes, points: Sequence[Point], x: Callable[[Point], float]) -> None:
    """Every point by its kind, names beside those of this bundle, the front as a line."""
    for point in points:
        marker, colour, size = MARKS[point.kind]
        axes.plot(x(point), stretch_precision(point.precision[1]), marker, color=colour, markersize=size, alpha=0.9)
    best = find_front(points, x)
    axes.plot(
        [x(point) for point in best],
        [stretch_precision(p.precision[1]) for p in best],
        color=MUTED,
        linewidth=1,
        zorder=0,
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=choose_ticks([x(point) for point in points])))
    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.12)


def choose_ticks(values: Sequence[float]) -> Sequence[float]:
    """The multiples of powers of ten that an axis of `values` marks: more where these lie close together."""
    return FINE_TICKS if max(values) < FINE_RANGE * min(values) else COARSE_TICKS


def format_tick(value: float, position: int) -> str:
    """A tick's label, as in `1/16` instead of `0.0625`."""
    del position
    return f"{value:g}" if value >= 1 else f"1/{round(1 / value, 2):g}"


def draw_promise(axes: Axes, figures: Figures) -> None:
    """Draw the promised P@1 as a horizontal line."""
    if 1 in figures.promise:
        axes.axhline(stretch_precision(figures.promise[1]), color=SECOND, linewidth=1, linestyle=(0, (4, 3)), zorder=0)


def stretch_precision(precision: float) -> float:
    """Precision -> -log10(1 - precision); a share of misses under `MIN_MISSES` counts as that."""
    return float(-np.log10(max(1 - precision, MIN_MISSES)))


def stretch_axis(axes: Axes, values: Sequence[float]) -> None:
    """An axis of precision from a little under the least value up to 1."""
    least = max(tick for tick in (0.0, *P1_TICKS[:-3]) if tick <= min(values))
    ticks = [tick for tick in P1_TICKS if tick >= least]
    axes.set_yticks([stretch_precision(tick) for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.set_ylim(stretch_precision(least) - 0.08, stretch_precision(1.0) + 0.2)


def draw_candidates(figures: Figures) -> Figure | None:
    """Rows by how many classes were scored; none where that is always the same."""
    candidates = figures.measured.candidates
    if len(candidates.counts) < 2:
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 2.4))
    axes = figure.subplots()
    axes.stairs(candidates.counts, candidates.edges, fill=True, color=ACCENT, alpha=0.75)
    for key, words in {"mean": "mean", "p99": "99 %"}.items():
        at = candidates.summary[key]
        axes.axvline(at, color=SECOND, linewidth=1)
        axes.annotate(f"{words} {at:,.0f}", (at, 1), (3, 0), ("data", "axes fraction"), "offset points",
                      va="top", fontsize=8, color=SECOND)  # fmt: skip
    axes.set_xlabel("classes scored for a row")
    axes.set_ylabel("rows")
    return figure


def draw_parts(figures: Figures) -> Figure | None:
    """Sizes and shares of rows, each from the largest down."""
    parts = figures.measured.parts
    if parts is None:
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 2.6))
    left, right = figure.subplots(1, 2)
    draw_falling(left, [float(size) for size in parts.sizes], f"{parts.kind}s, largest first", "classes in it")
    draw_falling(
        right, [100 * share for share in parts.shares], f"{parts.kind}s, most used first", "% of rows that open it"
    )
    even = 100 * parts.opened / len(parts.shares)
    right.axhline(even, color=SECOND, linewidth=1, linestyle=(0, (4, 3)))
    right.annotate("if all were used alike", (1, even), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                   fontsize=8, color=SECOND)  # fmt: skip
    return figure


def draw_falling(axes: Axes, values: Sequence[float], x: str, y: str) -> None:
    """Values from the largest down, as filled steps."""
    axes.stairs(sorted(values, reverse=True), np.arange(len(values) + 1), fill=True, color=ACCENT, alpha=0.75)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xlim(0, len(values))
    axes.set_ylim(bottom=0)


def draw_copies(figures: Figures) -> Figure | None:
    """How many parts hold a class, by how often it is an answer."""
    parts = figures.measured.parts
    if parts is None or not parts.copies:
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 2.6))
    axes = figure.subplots()
    bars = axes.bar(range(len(parts.copies)), [one.copies for one in parts.copies], color=ACCENT, alpha=0.75)
    axes.bar_label(bars, [f"{one.copies:.3g}" for one in parts.copies], fontsize=8, color=MUTED, padding=2)
    axes.set_xticks(range(len(parts.copies)), [format_range(one.least, one.most) for one in parts.copies], fontsize=8)
    axes.set_xlabel("times among the five best answers of the sample")
    axes.set_ylabel(f"{parts.kind}s that hold the class")
    axes.grid(visible=False, axis="x")
    return figure


def format_range(least: int, most: int) -> str:
    """A bin's name, thousands as k."""
    ends = [str(end) if end < 1000 else f"{end / 1000:.0f}k" for end in (least, most)]
    return ends[0] if least == most else "-".join(ends)


def draw_calibration(figures: Figures) -> Figure | None:
    """Estimated against exact log-probabilities, and their difference by size."""
    calibration = figures.measured.calibration
    if calibration is None or not calibration.points:
        return None
    figure = Figure(figsize=(WIDTH_INCHES, 3.0))
    left, right = figure.subplots(1, 2)
    exact, estimates = np.array(calibration.points).T
    least = min(exact.min(), estimates.min())
    left.plot([least, 0], [least, 0], color=MUTED, linewidth=1)
    left.plot(exact, estimates, ".", color=ACCENT, markersize=4, alpha=0.6)
    left.set_xlabel("exact log-probability, nats")
    left.set_ylabel(f"{calibration.normalizer}, nats")
    at = [band.at for band in calibration.bands]
    right.fill_between(
        at, [b.p5 for b in calibration.bands], [b.p95 for b in calibration.bands], color=ACCENT, alpha=0.25, linewidth=0
    )
    right.plot(at, [band.p50 for band in calibration.bands], color=ACCENT)
    right.axhline(0, color=MUTED, linewidth=1)
    right.set_xlabel("exact log-probability, nats")
    right.set_ylabel(f"{calibration.normalizer} minus exact, nats")
    right.set_title("median, and 5 to 95 % of rows")
    return figure


DRAWERS: dict[str, Callable[[Figures], Figure | None]] = {
    "front": draw_precision,
    "candidates": draw_candidates,
    "parts": draw_parts,
    "copies": draw_copies,
    "calibration": draw_calibration,
    "domains": draw_domains,
    "risk": draw_risk,
}
