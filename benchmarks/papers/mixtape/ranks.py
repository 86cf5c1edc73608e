"""The rank of the log-probability matrix: what softmax cannot exceed, and mixtures do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common.figures import new_figure, save_figure

from .heads import TrainedHead

RANK_ROWS = 1000  # contexts
RANK_CLASSES = 2000  # every so-many-th class, for a matrix whose singular values take seconds
RANK_SHARE = 1e-5  # of the largest singular value, over which one counts: float32 rounding is under it


@dataclass(frozen=True)
class Spectrum:
    """Singular values [n], falling, of log-probabilities from which each row's mean was taken; their numeric rank."""

    values: Tensor
    rank: int


def measure_spectrum(head: TrainedHead, contexts: Tensor) -> Spectrum:
    """Of the first `RANK_ROWS` of contexts [n, d], over `RANK_CLASSES` classes, in float64.

    A row's mean is what the normaliser shifts, so that a softmax layer without bias has rank d at most, else d + 1.
    """
    with torch.inference_mode():
        logprobs = head.log_prob(contexts[:RANK_ROWS])
        some = logprobs[:, :: max(1, logprobs.shape[1] // RANK_CLASSES)].double()
        values = torch.linalg.svdvals(some - some.mean(dim=1, keepdim=True))
    return Spectrum(values, int((values > RANK_SHARE * values[0]).sum()))


def draw_spectra(spectra: Mapping[str, Spectrum], out: Path) -> None:
    """Draw the singular values by their place, each over the first."""
    figure = new_figure(8, 4.2)
    axes = figure.subplots()
    for name, one in spectra.items():
        axes.semilogy(
            range(1, len(one.values) + 1), (one.values / one.values[0]).tolist(), label=f"{name}, rank {one.rank}"
        )
    axes.axhline(RANK_SHARE, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(1e-8, 1)
    axes.set_xlabel("place of the singular value")
    axes.set_ylabel("singular value, over the largest")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    save_figure(figure, out)
