"""Pictures of runs, from their JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.runs import Run

from .tables import front, usable

matplotlib.use("Agg")
MARKERS = "osD^vP*Xh<>p"
LEAST = 0.5  # precision at the picture's lower edge


def precision_against_time(runs: Sequence[Run], out: Path, k: int = 1, batch: int = 1) -> None:
    """P@k on an axis that stretches towards 1, against time over dense's; the Pareto front drawn through.

    Over dense's, since the machine may have been busier in one run than in another.
    """
    figure = Figure(figsize=(10, 6.5), dpi=130, layout="constrained")
    axes = figure.subplots()
    for number, (name, own) in enumerate(sorted(by_contender(usable(runs, k, batch)).items())):
        size = 9 if name.startswith("shortlist") else 6
        x, y = coordinates(own, k, batch)
        axes.plot(x, y, MARKERS[number % len(MARKERS)], color=f"C{number % 10}", markersize=size, alpha=0.8, label=name)
    x, y = coordinates(front(runs, k, batch), k, batch)
    axes.plot(x, y, color="black", linewidth=1, linestyle="--", label="Pareto front", zorder=0)
    decorate(axes, runs, k, batch)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def by_contender(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs in groups."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.contender].append(run)
    return groups


def coordinates(runs: Sequence[Run], k: int, batch: int) -> tuple[list[float], list[float]]:
    """Time over dense's in the same blocks, and log10 of the share of misses, downwards."""
    return [1 / run.spent[batch].speedup for run in runs], [missed(run.precision[k].value) for run in runs]


def missed(precision: float) -> float:
    """Precision -> -log10(1 - precision), at most that of one miss in 20,000."""
    return float(-np.log10(max(1 - precision, 5e-5)))


def decorate(axes: Axes, runs: Sequence[Run], k: int, batch: int) -> None:
    """Axes, ticks and legend."""
    ticks = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
    axes.set_yticks([missed(tick) for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.set_ylim(missed(LEAST), missed(1.0) + 0.1)
    axes.set_xscale("log")
    axes.set_xlabel(f"time, 1 is the dense layer in the same blocks; batch {batch}, log scale")
    axes.set_ylabel(f"P@{k}, stretched towards 1")
    names = sorted({run.dataset for run in runs})
    threads = sorted({run.threads for run in runs})
    axes.set_title(f"{', '.join(names)}: precision against time, {'/'.join(map(str, threads))} thread(s)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
