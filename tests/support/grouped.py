"""Layers and contexts for heads of method grouped."""

import numpy as np

from tests.support.layers import make_contexts

CLASSES, DIM = 2003, 68  # neither is a multiple of what one instruction reads


OPTIONS = {"width": "30", "groups": "30", "previewed": "1000", "candidates": "200"}
contexts = make_contexts(800, DIM)
rows = contexts.contexts[-80:]
LAYERS = {
    "plain": {},
    "whole": {
        "bias": np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32),
        "logit_scale": 0.7,
        "soft_cap": 30.0,
        "padded": np.array([5, 1999]),
    },
}
