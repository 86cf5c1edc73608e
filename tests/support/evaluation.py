"""Contexts and targets to evaluate a head on which misses some of the best classes."""

import numpy as np

from tests.support.layers import CLASSES, make_contexts

SAMPLE = make_contexts(3000, seed=5)
CONTEXTS = SAMPLE.contexts[:150]
TARGETS = np.random.default_rng(2).integers(0, CLASSES, 150)
OPTIONS = {"basis": "context", "width": "6", "full_view": "12"}
