"""Perturbed calibration contexts, which stand for kinds of text that the calibration has none of.

Rows of the kinds that a head was fitted on are easy: a first look misses the best class of .001 of them where the
layer is Gemma 3's, and of .013 to .023 of news, encyclopedia articles and Italian. Estimates fitted to easy rows alone
vary by chance and state too little for others (docs/log/looks.md). So some calibration rows are perturbed, as domain
randomization does (Tobin et al. 2017): what a context has along each principal direction is multiplied by a factor of
its own.
"""

from __future__ import annotations

import numpy as np
from shortlist.core.results import FloatArray

MOST_PERTURBED_ROWS = 400
PERTURBED_SHARE = 2 / 5  # of the calibration rows, at most
MAX_LOG_DEVIATION = 1.5  # of a row's factors: each row has one between 0 and this
DIRECTION_ROWS = 1_024  # contexts whose principal directions are taken: what lies outside of them stays as it is


def perturb_contexts(contexts: FloatArray, seed: int) -> FloatArray:
    """Some of `contexts` [n, d], perturbed and as long as before: float32 [m, d], m = 2 n / 5 but at most 400."""
    random = np.random.default_rng(seed)
    count = min(MOST_PERTURBED_ROWS, int(PERTURBED_SHARE * len(contexts)))
    rows = contexts[np.sort(random.permutation(len(contexts))[:count])].astype(np.float64)
    directions = np.linalg.svd(contexts[:DIRECTION_ROWS].astype(np.float64), full_matrices=False)[2]
    deviations = random.uniform(0, MAX_LOG_DEVIATION, (count, 1))
    factors = np.exp(deviations * random.standard_normal((count, len(directions))))
    perturbed = rows + (rows @ directions.T * (factors - 1)) @ directions
    scale = np.linalg.norm(rows, axis=1) / np.maximum(np.linalg.norm(perturbed, axis=1), np.finfo(np.float64).tiny)
    return np.asarray(perturbed * scale[:, None], np.float32)
