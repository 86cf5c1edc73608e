"""What the heads of this study are called and asked; read where the exporter is not installed, too."""

from __future__ import annotations

import numpy as np
from shortlist.core.results import FloatArray

NAME = "lm"


def make_contexts(rows: int, dim: int, seed: int = 0) -> FloatArray:
    """Context vectors [rows, d] float32 that go a few directions more than others."""
    random = np.random.default_rng(seed)
    scales = np.geomspace(3, 0.3, dim).astype(np.float32)
    contexts: FloatArray = random.standard_normal((rows, dim), np.float32) * scales
    return contexts
