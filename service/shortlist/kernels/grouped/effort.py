"""How far a search of plan `grouped` looks: looks that go further and further, until enough was found."""

from __future__ import annotations

from ctypes import byref
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from shortlist.kernels.lists import MOST_LISTED

from .tables import LimitsStruct, SearchStruct

EFFORT_FEATURES = 11  # of a look, as `describe_look` of grouped_effort.h lists them
SIZE_FEATURES = (0, 9, 10)  # those that are logarithms of sizes: a context c times as long adds log(c) to each
MAX_LIMIT = np.iinfo(np.int32).max


class Look(NamedTuple):
    """How far one look goes, in classes: the settings of these names.

    raise_share: how much previews are raised, as a share of what finds the best class most surely.
    """

    opened: int
    previewed: int
    candidates: int
    full_view: int
    raise_share: float = 1.0


class Search(NamedTuple):
    """A search for k classes.

    looks: each goes further than the one before. fitted: the number of candidates beside which the tail was fitted.
    weights: of each look, `EFFORT_FEATURES` and a constant: the log-odds that some of the k best were missed; none
    where the search was not calibrated, so that the last look decides. bar: log-odds over which the next look is
    taken. list_weights: those of the last look of a row with lists, where they are not the same. doubt_bar: log-odds
    over which a row gets INFINITY for them after the last look, since it should be answered exactly. most_listed: of
    so few permitted classes all are scored.
    """

    looks: tuple[Look, ...]
    k: int
    fitted: int
    weights: tuple[tuple[float, ...], ...] = ()
    bar: float = 0.0
    list_weights: tuple[float, ...] = ()
    doubt_bar: float = inf
    most_listed: int = MOST_LISTED


@lru_cache(maxsize=256)
def make_search(search: Search) -> Any:
    """Return a pointer to the struct of a search, which keeps what it points at."""
    limits = (LimitsStruct * len(search.looks))(
        *(LimitsStruct(*(min(limit, MAX_LIMIT) for limit in look)) for look in search.looks)
    )
    rows = (*search.weights, search.list_weights or search.weights[-1]) if search.weights else ()
    weights = np.array(rows, np.float32)
    addresses = (weights.ctypes.data, weights[-1:].ctypes.data) if rows else (None, None)
    numbers = len(limits), search.k, search.fitted, search.most_listed, search.bar, search.doubt_bar
    struct = SearchStruct(limits, *addresses, *numbers)
    struct.weights_array = weights
    return byref(struct)
