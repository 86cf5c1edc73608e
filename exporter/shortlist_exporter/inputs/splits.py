"""Fit rows and held-out rows, in two parts or three: by document where the contexts say which, else the last tenth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from shortlist.errors import BadInput

from .sources import Contexts

SHARE = 10  # one row in ten is held out
MOST = 4096  # more held-out rows than this are not measured at export

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Splits:
    """Indices of rows to fit on, ascending, and of distinct rows to tune on and to test on, in random order.

    No document has rows in two of them.
    """

    fit: Rows
    tune: Rows
    test: Rows


def three_ways(contexts: Contexts, seed: int, most_tune: int, most_test: int) -> Splits:
    """The last tenth of the rows, made up to whole documents, tests; the tenth before it tunes; the rest fits.

    Each row is its own document where the contexts do not say. Raises BadInput when nothing is left to fit on.
    """
    order = document_order(contexts.documents, len(contexts.contexts))
    test = closing(order, np.ones(len(order), np.bool_))
    tune = closing(order, ~test)
    fit = np.flatnonzero(~(test | tune))
    if not len(fit):
        raise too_few(contexts.documents, "fit, tune and test")
    return Splits(fit, sampled(contexts, tune, seed, most_tune), sampled(contexts, test, seed, most_test))


def two_ways(contexts: Contexts, test: Contexts, seed: int, most_tune: int, most_test: int) -> Splits:
    """As `three_ways`, but every row of `test` tests, which `Splits.test` indexes, and the last tenth tunes."""
    order = document_order(contexts.documents, len(contexts.contexts))
    tune = closing(order, np.ones(len(order), np.bool_))
    if tune.all():
        raise too_few(contexts.documents, "fit and tune")
    whole = np.ones(len(test.contexts), np.bool_)
    return Splits(
        np.flatnonzero(~tune), sampled(contexts, tune, seed, most_tune), sampled(test, whole, seed, most_test)
    )


def too_few(documents: npt.NDArray[np.int32] | None, parts: str) -> BadInput:
    """What to say when the rows cannot be split."""
    held = "too few rows" if documents is None else f"{len(np.unique(documents))} documents"
    return BadInput(f"contexts hold {held}, too few for {parts} splits by document: capture more text")


def document_order(documents: npt.NDArray[np.int32] | None, rows: int) -> Rows:
    """[rows]: the number of a row's document, in the order in which documents end."""
    if documents is None:
        return np.arange(rows)
    _, owner = np.unique(documents, return_inverse=True)
    end = np.zeros(owner.max(initial=0) + 1, np.int64)
    end[owner] = np.arange(rows)  # the last row's number stays
    return np.argsort(np.argsort(end))[owner]


def closing(order: Rows, among: Mask) -> Mask:
    """Of the rows `among`: the last documents that reach into the last tenth of all rows."""
    sizes = np.bincount(order[among], minlength=int(order.max(initial=0)) + 1)
    after = sizes[::-1].cumsum()[::-1] - sizes
    return np.asarray(among & (after[order] < max(1, len(order) // SHARE)))


def sampled(contexts: Contexts, part: Mask, seed: int, most: int) -> Rows:
    """At most `most` distinct rows of `part`, in random order."""
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(part))[: 2 * most]
    return distinct(contexts.contexts, shuffled)[:most]


def split(contexts: Contexts, seed: int) -> tuple[Rows, Rows]:
    """Indices of the fit rows and of at most `MOST` distinct held-out rows, in random order.

    Raises BadInput when there are too few rows to hold any out.
    """
    rows = len(contexts.contexts)
    if rows < 2:
        raise BadInput("contexts hold a single row: give at least 2, one to fit and one to hold out")
    held = held_out(contexts.documents, rows)
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(held))[: 2 * MOST]
    return np.flatnonzero(~held), distinct(contexts.contexts, shuffled)[:MOST]


def held_out(documents: npt.NDArray[np.int32] | None, rows: int) -> npt.NDArray[np.bool_]:
    """[rows]: every document that reaches into the last tenth of the rows; that tenth itself where that is all."""
    last = np.arange(rows) >= rows - max(1, rows // SHARE)
    if documents is None:
        return last
    whole = np.isin(documents, documents[last])
    return last if whole.all() else whole


def distinct(contexts: npt.NDArray[np.float32], rows: Rows) -> Rows:
    """`rows` without those whose context vector an earlier one has."""
    _, first = np.unique(contexts[rows], axis=0, return_index=True)
    return rows[np.sort(first)]
