"""The study's picture: a point for every kind of text and contender, precision against speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.common.figures import new_figure, save_figure

from .contenders import OURS
from .summary import Findings, Paces

COLOURS = ("#c1121f", "#0353a4", "#2a9d8f", "#d4a000")
TICKS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995)
LEAST_MISSES = 1e-4
NAME_GAP = 0.09  # between the heights of two names, as `stretch` gives heights
NAME_PLACE = 1.02  # of the picture's width, where names begin: to the right of it


def stretch(precision: float) -> float:
    """P@1 -> -log10(1 - P@1): equal steps are equal factors of the share of misses."""
    return float(-np.log10(max(1 - precision, LEAST_MISSES)))


def space_names(heights: list[float]) -> list[float]:
    """Heights for names of points at `heights`: in the points' order, and at least NAME_GAP from each other."""
    places, least = [0.0] * len(heights), -np.inf
    for i in np.argsort(heights, kind="stable").tolist():
        places[i] = max(heights[i], least)
        least = places[i] + NAME_GAP
    return places


def name_points(axes: Axes, kinds: list[str], speeds: list[float], heights: list[float]) -> None:
    """Write the kinds' names one over the other to the right of the picture, a line from each to its point."""
    line = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}
    beside = axes.get_yaxis_transform()
    for kind, speed, height, place in zip(kinds, speeds, heights, space_names(heights), strict=True):
        point, name = (speed, height), (NAME_PLACE, place)
        axes.annotate(kind, point, name, textcoords=beside, va="center", fontsize=8, arrowprops=line)


def plot_kinds(findings: Findings, paces: Paces, path: Path) -> None:
    """Draw P@1 against times dense at k = 1, a colour a contender; our points are named. Writes the PNG to `path`."""
    figure = new_figure(9.5, 5.8)
    axes = figure.subplots()
    for colour, name in zip(COLOURS, findings, strict=False):
        kinds = list(findings[name])
        speeds = [paces[name][kind].times_dense for kind in kinds]
        heights = [stretch(findings[name][kind].p1.mean) for kind in kinds]
        axes.scatter(speeds, heights, color=colour, s=26, label=name, zorder=3)
        if name == OURS:
            name_points(axes, kinds, speeds, heights)
    axes.set_xscale("log")
    axes.margins(x=0.06, y=0.08)
    for axis_ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis_ticks("{x:g}")
    axes.set_yticks([stretch(tick) for tick in TICKS], [f"{tick:g}" for tick in TICKS])
    axes.set_xlabel("speed-up, times: dense layer's mean time / contender's (batch 1, k = 1, log scale)")
    axes.set_ylabel("P@1: share of rows whose best class is found")
    axes.set_title("Precision by kind of text against speed: SmolLM2's layer, fitted on the shipped texts")
    axes.axhline(stretch(0.99), color="#999999", linewidth=1)
    axes.grid(visible=True, color="#ececec")
    axes.legend(fontsize=9, loc="lower left")
    save_figure(figure, path)
