"""The k best classes as scores of all classes, for a program that wants logits of each.

They are log-probabilities of the k best, and for each other class an equal share of the probability that is left over:
log-softmax of them is itself, so that beam search and processors of logits do not normalise over the shortlist alone.
"""

from __future__ import annotations

import sys

import numpy as np

from shortlist.core.results import BoolArray, FloatArray, IdArray, TopK
from shortlist.head import Head

RETURNED_CLASSES = 64  # of each position, unless asked otherwise: beam search of n beams wants 2 n or more
LEAST_REST = 1e-30  # probability of the classes that are not returned: float32 holds no log of 0
IDLE_REFERENCES = 2  # to an array that only its owner holds: its attribute, and the argument of `sys.getrefcount`


def find_padding(head: Head, logits: FloatArray) -> BoolArray:
    """Which rows of the layer [V] are no class, by logits [V] of any context.

    A head that is its own reference may give any class the probability 0, and no logit of it tells of padding.
    """
    return np.isneginf(logits) & (not head.is_own_reference)


class ScoreMemory:
    """Scores [n, V] float32 in the same memory step after step, for as long as nobody holds those of an earlier one.

    Fresh memory of many rows of many classes costs more than to write it: the system has to map each page.
    """

    def __init__(self, padded: BoolArray) -> None:
        """padded: [V], the classes that always have -inf."""
        self.classes, self.padded = padded.size, padded.nonzero()[0]
        self.memory: FloatArray = np.empty((0, self.classes), np.float32)

    def write(self, ids: IdArray, scores: FloatArray, rest: FloatArray) -> FloatArray:
        """Scores [n, k] of classes `ids` [n, k], and rest [n, 1] of each other one -> [n, V] in the memory.

        Ids of -1, which stand behind a row's real ones, have scores of -inf, as the rest has there.
        """
        if len(ids) > len(self.memory) or sys.getrefcount(self.memory) > IDLE_REFERENCES:
            self.memory = np.empty((len(ids), self.classes), np.float32)
        table = self.memory[: len(ids)]
        table[:] = rest
        if self.padded.size:
            table[:, self.padded] = -np.inf
        real = ids >= 0  # in place of the others the best is written again
        places, values = (np.where(real, each, each[:, :1]) for each in (ids, scores))
        np.put_along_axis(table, places, values, axis=1)
        return table


def share_rest(top: TopK, classes: int) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities [n, k] of the classes returned and [n, 1] of each other one, of `classes` in all.

    Together they sum to 1. No other class gets more than the least of those returned: where more is left, because the
    normaliser was estimated, all log-probabilities are raised alike.
    """
    others = classes - top.ids.shape[1]
    logprobs = top.logprobs.astype(np.float64)
    inside = np.exp(logprobs).sum(axis=1, keepdims=True)
    if others < 1:
        return (logprobs - np.log(inside)).astype(np.float32), np.full(inside.shape, -np.inf, np.float32)
    rest = np.log(np.maximum(1 - inside, LEAST_REST)) - np.log(others)
    rest = np.minimum(rest, logprobs[:, -1:])
    total = np.log(inside + others * np.exp(rest))
    return (logprobs - total).astype(np.float32), (rest - total).astype(np.float32)


def find_zero(head: Head, contexts: FloatArray, top: TopK, known: FloatArray) -> FloatArray:
    """What log-probabilities [n, k] of the classes returned lack of being logits [n, 1], by the best class of each."""
    logits: FloatArray = head.compute_logits(head.plan, contexts, top.ids[:, :1])
    return logits - known[:, :1]
