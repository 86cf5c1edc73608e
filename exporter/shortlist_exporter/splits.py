"""Fit rows and held-out rows: by document where the contexts say which, else the last tenth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from shortlist.errors import BadInput

from .sources import Contexts

SHARE = 10  # one row in ten is held out
MOST = 4096  # more held-out rows than this are not measured at export

Rows = npt.NDArray[np.int64]


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
