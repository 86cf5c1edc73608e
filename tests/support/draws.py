"""How probable it is that draws are of a distribution."""

from __future__ import annotations

import numpy as np
import torch

LEAST_EXPECTED = 5  # draws of a cell; classes that expect fewer are pooled, rarest first


def pool_cells(counts, expected):
    """Counts and expected numbers [m] of cells that each expect at least `LEAST_EXPECTED`."""
    cells, cell, filled = np.empty(len(expected), int), 0, 0.0
    for each in np.argsort(expected):
        cells[each] = cell
        filled += expected[each]
        if filled >= LEAST_EXPECTED:
            cell, filled = cell + 1, 0.0
    return tuple(np.bincount(cells, weights=values) for values in (counts, expected))


def compute_p_value(ids, logits):
    """P(chi-square as large or larger) of draws [n] from softmax(logits [V])."""
    expected = np.exp(logits - logits.max())
    expected *= len(ids) / expected.sum()
    counts, expected = pool_cells(np.bincount(ids, minlength=len(logits)).astype(float), expected)
    chi = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor([(len(expected) - 1) / 2, chi / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
