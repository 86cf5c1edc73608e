"""A catalogue made at random with the structure of a trained one, and the vectors of its users.

Items lie in topics and in shelves of topics, whose sizes fall as popularity does; their components fall as singular
values of factors that were fitted do; their norms vary as counts of interactions do. Users like items of a few shelves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from shortlist.core.results import FloatArray, IdArray

TOPICS, SHELVES = 400, 40  # of a catalogue, of a topic
POPULARITY = 0.7  # exponent by which the sizes of topics fall
SPECTRUM = 0.35  # exponent by which the components of items fall
SHELF_PART, ITEM_PART = 0.7, 0.55  # what shelves and items add to the topic's vector, whose length is 1
NORM_SPREAD = 0.35  # standard deviation of the logarithm of norms: 1 in 1,000 is 3 times as long as the median
LIKED_ITEMS = 6  # whose mean is a user
USER_NOISE = 0.35
CHUNK_ITEMS = 1 << 17  # made at once: float64 drafts of all items would be several copies


@dataclass(frozen=True)
class Catalogue:
    """items: [V, d] float32. contexts: [n, d] float32, users to fit on. asked: [m, d] float32, other users."""

    items: FloatArray
    contexts: FloatArray
    asked: FloatArray


def make_catalogue(items: int, dim: int, fit_users: int, asked_users: int, seed: int = 0) -> Catalogue:
    """Items and users at random; the same for the same arguments."""
    random = np.random.default_rng(seed)
    spectrum = np.arange(1, dim + 1, dtype=np.float32) ** np.float32(-SPECTRUM)
    topics = draw_directions(random, TOPICS, spectrum)
    shelves = topics[:, None] + SHELF_PART * draw_directions(random, TOPICS * SHELVES, spectrum).reshape(
        TOPICS, SHELVES, dim
    )
    shares = np.arange(1, TOPICS + 1) ** -POPULARITY
    matrix, start = np.empty((items, dim), np.float32), 0
    for part in draw_items(random, items, shelves, shares / shares.sum(), spectrum):
        matrix[start : start + len(part)] = part
        start += len(part)
    users = draw_users(random, fit_users + asked_users, matrix, shelves, spectrum)
    return Catalogue(matrix, users[:fit_users], users[fit_users:])


def draw_directions(random: np.random.Generator, count: int, spectrum: FloatArray) -> FloatArray:
    """Vectors [count, d] of length 1, whose components fall as the spectrum [d] does."""
    drafts = random.standard_normal((count, len(spectrum)), np.float32) * spectrum
    return np.asarray(drafts / np.linalg.norm(drafts, axis=1, keepdims=True), np.float32)


def draw_items(
    random: np.random.Generator, count: int, shelves: FloatArray, shares: IdArray, spectrum: FloatArray
) -> Iterator[FloatArray]:
    """Items [up to `CHUNK_ITEMS`, d] of shelves [T, S, d]; shares: [T], of the topics among all items."""
    for start in range(0, count, CHUNK_ITEMS):
        size = min(CHUNK_ITEMS, count - start)
        topic, shelf = random.choice(len(shares), size, p=shares), random.integers(shelves.shape[1], size=size)
        items = shelves[topic, shelf] + ITEM_PART * draw_directions(random, size, spectrum)
        norms = np.exp(random.normal(0, NORM_SPREAD, size)).astype(np.float32)
        yield items * norms[:, None]


def draw_users(
    random: np.random.Generator, count: int, items: FloatArray, shelves: FloatArray, spectrum: FloatArray
) -> FloatArray:
    """Users [count, d]: the mean of some items of the catalogue and some of one shelf each, with noise."""
    liked = items[random.integers(len(items), size=(count, LIKED_ITEMS // 2))].mean(axis=1)
    home = shelves.reshape(-1, len(spectrum))[random.integers(shelves.shape[0] * shelves.shape[1], size=count)]
    noise = USER_NOISE * draw_directions(random, count, spectrum)
    return np.ascontiguousarray(liked + home + noise, np.float32) * np.float32(4)
