"""Layers and contexts for heads of method grouped."""

import numpy as np
from shortlist.evaluation.ranking import TrueClasses
from shortlist.evaluation.truth import Truth

from tests.support.layers import list_layers, logits_of, make_contexts, make_dense

CLASSES, DIM = 2003, 68  # neither is a multiple of what one instruction reads


OPTIONS = {
    "width": "30",
    "groups": "30",
    "opened": "1500",
    "previewed": "1000",
    "candidates": "200",
    "promise": "0",  # as many classes are opened for every row
}
contexts = make_contexts(800, DIM)
rows = contexts.contexts[-80:]
LAYERS = list_layers(CLASSES)

PROMISE_CLASSES = 4003
# So few classes are looked at first that many rows need more.
PROMISE_OPTIONS = {"width": "60", "groups": "60", "opened": "200", "candidates": "64"}
promise_contexts = make_contexts(8000, DIM, seed=5)


def find_promise_truth(contexts, depth):
    """The `depth` best of the promise head's classes, without their log-probabilities."""
    logits = logits_of(make_dense(PROMISE_CLASSES, DIM), contexts)
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :depth]
    nothing = np.zeros(ids.shape, np.float32)
    return Truth(contexts, TrueClasses.without_ties(ids), nothing, nothing[:, 0])
