"""Output layers of many kinds, and contexts for them, drawn by a random generator alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from shortlist.core.results import FloatArray
from shortlist_exporter.inputs.sources import Contexts, Dense

Doubles = npt.NDArray[np.float64]
Generator = np.random.Generator

SIZES = ((9, 60), (61, 400), (401, 1100), (1101, 3000))  # of V: from, to
MIN_DIM, MAX_DIM = 5, 130
FIT_ROWS, POOL_ROWS = 400, 300
CANCELLING_WEIGHTS = (30.0, 100.0, 300.0, 1000.0)  # of the two components that cancel
CANCELLING_MEANS = (1.0, 10.0, 100.0)  # of a context's components that they meet
SPARED_ROWS = 3  # of a layer, never padding


@dataclass(frozen=True)
class Layer:
    """A dense layer, contexts [400, d] to fit a head with, and a pool [300, d] of contexts to ask for.

    whole: every logit is a whole number that float32 holds, in whatever order it is summed.
    """

    kind: str
    dense: Dense
    fit: Contexts
    pool: FloatArray
    whole: bool


def repeat_rows(random: Generator, classes: int, width: int, times: int) -> Doubles:
    """Rows of which each comes `times` times, side by side or far apart."""
    rows = random.standard_normal((-(-classes // times), width))
    repeated = np.repeat(rows, times, axis=0) if random.random() < 0.5 else np.tile(rows, (times, 1))
    return repeated[:classes]


def copy_some(random: Generator, classes: int, width: int) -> Doubles:
    """Rows of which a third are copies of others."""
    rows = random.standard_normal((classes, width))
    copies = random.permutation(classes)[: classes // 3]
    rows[copies] = rows[random.integers(classes, size=copies.size)]
    return rows


def nearly_copy(random: Generator, classes: int, width: int) -> Doubles:
    """Groups of eight rows that differ by some units of float32's last place."""
    rows = np.repeat(random.standard_normal((-(-classes // 8), width)), 8, axis=0)[:classes]
    nearly: Doubles = rows * (1 + 1e-7 * random.integers(-3, 4, (classes, width)))
    return nearly


def cancel(random: Generator, classes: int, width: int) -> Doubles:
    """Rows with two huge components that cancel where a context's first two are equal."""
    rows = random.standard_normal((classes, width))
    huge = random.choice(CANCELLING_WEIGHTS)
    rows[:, 0], rows[:, 1] = huge, -huge
    return rows


def spread_norms(random: Generator, classes: int, width: int) -> Doubles:
    """Rows with norms from 1e-6 to 1e6."""
    norms = random.permutation(np.geomspace(1e-6, 1e6, classes))[:, None]
    rows: Doubles = random.standard_normal((classes, width)) * norms
    return rows


# Each makes [classes, width]: weights, and in the last column the bias
KINDS: dict[str, Callable[[Generator, int, int], Doubles]] = {
    "plain": lambda random, classes, width: random.standard_normal((classes, width)),
    "twice": lambda random, classes, width: repeat_rows(random, classes, width, 2),
    "four times": lambda random, classes, width: repeat_rows(random, classes, width, 4),
    "all equal": lambda random, classes, width: repeat_rows(random, classes, width, classes),
    "some copies": copy_some,
    "near copies": nearly_copy,
    "cancelling": cancel,
    "norms of all sizes": spread_norms,
    "zero rows": lambda random, classes, width: (
        random.standard_normal((classes, width)) * (random.random((classes, 1)) < 0.4)
    ),
    "whole numbers": lambda random, classes, width: random.integers(-3, 4, (classes, width)).astype(np.float64),
}


def make_layer(random: Generator) -> Layer:
    """Make a layer of a random kind, size and finish."""
    kind = str(random.choice(list(KINDS)))
    classes = int(random.integers(*SIZES[random.choice(4, p=[0.25, 0.4, 0.2, 0.15])]))
    dim = int(np.exp(random.uniform(np.log(MIN_DIM), np.log(MAX_DIM + 1))))
    rows = (KINDS[kind](random, classes, dim + 1) + 0.0).astype(np.float32)  # + 0: no negative zeros
    whole, dense = kind == "whole numbers", finish_layer(random, rows)
    contexts = draw_contexts(random, kind, FIT_ROWS + POOL_ROWS, dim)
    exact = whole and dense.logit_scale == 1.0 and dense.soft_cap is None
    return Layer(kind, dense, Contexts(contexts[:FIT_ROWS]), vary(random, contexts[FIT_ROWS:], rows, whole), exact)


def finish_layer(random: Generator, rows: FloatArray) -> Dense:
    """A layer of `rows` [V, d + 1]: some with a bias, a logit scale, a soft-cap, padding."""
    padded = np.flatnonzero(random.random(len(rows)) < 0.05)
    options: dict[str, Any] = {
        "bias": np.ascontiguousarray(rows[:, -1]) if random.random() < 0.4 else None,
        "logit_scale": float(random.choice([0.7, 2.0])) if random.random() < 0.2 else 1.0,
        "soft_cap": float(random.choice([4.0, 30.0])) if random.random() < 0.15 else None,
        "padded": padded[padded >= SPARED_ROWS] if random.random() < 0.25 else np.empty(0, np.int64),
    }
    return Dense(np.ascontiguousarray(rows[:, :-1]), **options)


def draw_contexts(random: Generator, kind: str, rows: int, dim: int) -> FloatArray:
    """Contexts [rows, d] as a network gives them: some directions matter more than others."""
    if kind == "whole numbers":
        return random.integers(-4, 5, (rows, dim)).astype(np.float32)
    contexts = random.standard_normal((rows, dim)) * np.geomspace(2, 0.2, dim) * random.choice([0.3, 1.0, 3.0])
    if kind == "cancelling":
        contexts[:, :2] = contexts[:, :1] + random.choice(CANCELLING_MEANS)
    drawn: FloatArray = contexts.astype(np.float32)
    return drawn


def vary(random: Generator, contexts: FloatArray, rows: FloatArray, whole: bool) -> FloatArray:
    """The same contexts with some replaced: by zeros, one component, rows of the layer, tiny and large ones."""
    pool, tenth = contexts.copy(), random.integers(10, size=len(contexts))
    pool[tenth == 0] = 0
    pool[tenth == 1] = np.eye(pool.shape[1], dtype=np.float32)[random.integers(pool.shape[1], size=(tenth == 1).sum())]
    pool[tenth == 2] = rows[random.integers(len(rows), size=(tenth == 2).sum()), :-1]
    pool[tenth == 3] *= np.float32(1 if whole else 1e-6)
    pool[tenth == 4] *= np.float32(100)
    return pool
