"""The paper's two-cluster figure: a training step against the head's size; and against the number of tails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.figures import new_figure, save_figure

from .training_times import Step, Training


def draw_training(training: Training, out: Path) -> None:
    """Draw both panels: measured and predicted steps beside the full softmax."""
    full = next(one for one in training.vocabularies if one.classes == training.classes).steps[0]
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    draw_steps(left, training.heads, full, "classes in the head, one tail; log scale")
    left.set_xscale("log")
    left.set_title(f"two clusters, V = {training.classes:,}")
    draw_steps(right, training.tails, full, "tails, cutoffs by the dynamic programme")
    right.set_xticks(sorted(training.tails))
    right.set_title(f"number of tails, V = {training.classes:,}")
    save_figure(figure, out)


def draw_steps(axes: Axes, steps: Mapping[int, Step], full: Step, label: str) -> None:
    """Draw steps as shares of the full softmax's: measured over measured, predicted over predicted."""
    places = sorted(steps)
    assert full.prediction is not None
    axes.plot(places, [steps[one].seconds / steps[one].full for one in places], "o-", label="measured")
    predictions = [(steps[one].prediction or 0.0) / full.prediction for one in places]
    axes.plot(places, predictions, "s--", label="predicted by g(k, B)")
    axes.axhline(1, color="black", linewidth=0.8, label="full softmax")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("training step, over that of the full softmax")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
