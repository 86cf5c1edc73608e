"""The picture of a data set: the Pareto front of every contender, precision against speed-up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.common.figures import new_figure, save_figure
from benchmarks.common.runs import Run

from .tables import find_pareto_front, select_usable_runs

OUR_COLOURS = {
    "shortlist grouped": "#c1121f",
    "shortlist cascade": "#f77f00",
    "shortlist l2s": "#7b2cbf",
    "shortlist svd": "#d4a000",
}
PEER_COLOURS = ("#0353a4", "#2a9d8f", "#4cb944", "#5fa8d3")  # of the fastest peers, in their order
OTHER_COLOUR = "#c4c4c4"
LOWEST_PRECISION = 0.9  # at the picture's lower edge
LEAST_MISSES = 0.5 / 2048  # half a miss in the rows of a run; for k classes a row, fewer than 1 / k of it are none
JUDGED_PRECISION = 0.99  # peers are in colour by their speed-up at this P@k
FRONT_TICKS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995)


def plot_fronts(runs: Sequence[Run], path: Path, k: int = 1, batch: int = 1) -> None:
    """Draw P@k against the speed-up over dense at `batch`, a line a contender, and write the PNG to `path`.

    Speed-up is dense's time over the contender's in the same blocks, since the machine may have been busier in one run
    than in another. The vertical axis stretches towards 1: equal steps are equal factors of the share of misses.
    """
    figure = new_figure(9.0, 5.4)
    axes = figure.subplots()
    fronts = find_contender_fronts(runs, k, batch)
    colours = choose_colours(fronts, k, batch)
    for name in sorted(fronts, key=lambda name: (name in colours, name)):
        draw_front(axes, name, coordinates(fronts[name], k, batch), colours.get(name))
    axes.axvline(1, color="black", linewidth=1)
    axes.annotate("dense", (1, stretch(0.905, k)), xytext=(4, 0), textcoords="offset points", fontsize=10)
    label_axes(axes, runs, k, batch)
    add_legend(axes, colours, len(fronts) - len(colours))
    save_figure(figure, path)


def find_contender_fronts(runs: Sequence[Run], k: int, batch: int) -> dict[str, list[Run]]:
    """The Pareto front of every contender that approximates the dense layer, fastest setting first."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in select_usable_runs(runs, k, batch):
        if not run.contender.startswith("dense") and run.contender != "shortlist full":
            groups[run.contender].append(run)
    return {name: find_pareto_front(group, k, batch) for name, group in groups.items()}


def choose_colours(fronts: Mapping[str, Sequence[Run]], k: int, batch: int) -> dict[str, str]:
    """Contender -> colour: our heads, then the peers that are fastest at `JUDGED_PRECISION`; the others have none."""
    peers = {name: find_fastest_speedup(front, k, batch) for name, front in fronts.items() if name not in OUR_COLOURS}
    best = sorted((name for name in peers if peers[name]), key=lambda name: -peers[name])
    ours = {name: colour for name, colour in OUR_COLOURS.items() if name in fronts}
    return ours | dict(zip(best, PEER_COLOURS, strict=False))


def find_fastest_speedup(front: Sequence[Run], k: int, batch: int) -> float:
    """The largest speed-up at `JUDGED_PRECISION` or over; 0 where that is not reached."""
    precise = [run.spent[batch].speedup for run in front if run.precision[k].value >= JUDGED_PRECISION]
    return max(precise, default=0.0)


def coordinates(front: Sequence[Run], k: int, batch: int) -> tuple[list[float], list[float]]:
    """The runs' speed-ups, and their precisions on the stretched axis."""
    return [run.spent[batch].speedup for run in front], [stretch(run.precision[k].value, k) for run in front]


def stretch(precision: float, k: int) -> float:
    """P@k -> -log10(1 - P@k), where fewer misses than `LEAST_MISSES` / k count as that many."""
    return float(-np.log10(max(1 - precision, LEAST_MISSES / k)))


def draw_front(axes: Axes, name: str, points: tuple[list[float], list[float]], colour: str | None) -> None:
    """One line with small dots; peers in colour are dashed, the others thin and grey."""
    if colour is None:
        axes.plot(*points, "-", color=OTHER_COLOUR, linewidth=1, marker=".", markersize=3, zorder=1)
        return
    dashes = "-" if name in OUR_COLOURS else "--"
    axes.plot(*points, dashes, color=colour, linewidth=2, marker="o", markersize=4, label=name, zorder=3)


def label_axes(axes: Axes, runs: Sequence[Run], k: int, batch: int) -> None:
    """Title, units, ticks and limits."""
    axes.set_yticks([stretch(tick, k) for tick in (*FRONT_TICKS, 1.0)], [*(f"{tick:g}" for tick in FRONT_TICKS), "1"])
    axes.set_ylim(stretch(LOWEST_PRECISION, k), stretch(1.0, k) + 0.12)
    axes.set_xscale("log")
    axes.set_xlim(left=0.25)
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"speed-up, times: dense layer's time / contender's (batch {batch}, log scale)", fontsize=12)
    axes.set_ylabel(f"P@{k}: share of the exact top {k} found", fontsize=12)
    axes.tick_params(labelsize=11)
    names = ", ".join(sorted({run.dataset for run in runs}))
    threads = "/".join(map(str, sorted({run.threads for run in runs})))
    axes.set_title(f"{names}: precision against speed, threads: {threads}", fontsize=13)
    axes.grid(visible=True, color="#ececec")
    axes.set_axisbelow(True)


def add_legend(axes: Axes, colours: Mapping[str, str], others: int) -> None:
    """Our heads, the peers in colour, and how many lines are grey."""
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda index: list(colours).index(labels[index]))
    handles = [handles[index] for index in order]
    labels = [labels[index] for index in order]
    if others:
        handles += axes.plot([], [], "-", color=OTHER_COLOUR, linewidth=1)
        labels.append(f"{others} other peers")
    axes.legend(handles, labels, fontsize=11, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
