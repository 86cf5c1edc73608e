"""How probable it is that draws are of a distribution."""

from __future__ import annotations

import numpy as np
import torch

LEAST_EXPECTED = 5  # draws of a cell; classes that expect fewer are pooled, rarest first


def pool_cells(counts, expected):
    """Counts and expected numbers [m] of cells that each expect at least `LEAST_EXPECTED`."""
    order = np.argsort(expected)
    cells = np.floor(np.cumsum(expected[order]) / LEAST_EXPECTED - 1e-9).astype(int)
    cells = np.minimum(cells, cells[-1] - 1) if cells[-1] else cells  # the last one may be short
    pooled = [np.bincount(cells, weights=values[order]) for values in (counts, expected)]
    kept = pooled[1] > 0
    return pooled[0][kept], pooled[1][kept]


def compute_p_value(ids, logits):
    """P(chi-square as large or larger) of draws [n] from softmax(logits [V])."""
    expected = np.exp(logits - logits.max())
    expected *= len(ids) / expected.sum()
    counts, expected = pool_cells(np.bincount(ids, minlength=len(logits)).astype(float), expected)
    assert expected.min() >= LEAST_EXPECTED * 0.5
    chi = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor([(len(expected) - 1) / 2, chi / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
