"""The best continuations of groups of beams, out of the best classes of each beam."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.results import NO_CLASS, DoubleArray, IdArray

MAX_SORTED_SCORES = 2048  # of a group: more are cut down to those that reach the n-th best before they are sorted

Places = npt.NDArray[np.intp]


def rank_continuations(scores: DoubleArray, ids: IdArray, beam: int, n: int) -> Places:
    """Places [G, n] of the best of each group's candidates, best first; -1 where it has fewer than n.

    scores, ids: [G * beam, k], k candidates of each beam, -inf where there are fewer. Equal scores go by lower beam,
    then by lower id.
    """
    k = scores.shape[1]
    groups = len(scores) // beam
    by_group, group_ids = scores.reshape(groups, beam * k), ids.reshape(groups, beam * k)
    places = np.full((groups, n), -1, np.intp)
    if beam * k > MAX_SORTED_SCORES:
        for group in range(groups):
            best = rank_many(by_group[group], group_ids[group], k, n)
            places[group, : best.size] = best
        return places
    beams = np.zeros(by_group.shape, np.intp) + np.arange(beam * k) // k
    order = np.lexsort((group_ids, beams, -by_group), axis=1)[:, :n]
    order[take_by_row(by_group, order) == -np.inf] = -1
    places[:, : order.shape[1]] = order
    return places


def rank_many(scores: DoubleArray, ids: IdArray, k: int, n: int) -> Places:
    """Places [n or fewer] of the best of one group's many candidates [beam * k], best first."""
    real = np.flatnonzero(scores > -np.inf)
    if real.size > n:
        values = scores[real]
        real = real[values >= np.partition(values, real.size - n)[real.size - n]]
    order = np.lexsort((ids[real], real // k, -scores[real]))[:n]
    best: Places = real[order]
    return best


def take_places(values: npt.NDArray[np.generic], places: Places, missing: float) -> npt.NDArray[np.generic]:
    """The values [G, n] at `places` [G, n] of each group's [G, m]; `missing` where there is no place."""
    if not values.shape[1]:
        return np.full(places.shape, missing, values.dtype)
    taken = take_by_row(values, np.maximum(places, 0))
    taken[places < 0] = missing
    return taken


def take_by_row(values: npt.NDArray[Any], places: Places) -> npt.NDArray[Any]:
    """The values [G, n] at `places` [G, n] of each row [G, m], as of `np.take_along_axis` in half of the time."""
    return values[np.arange(len(values))[:, None], places]


def name_parents(places: Places, k: int) -> npt.NDArray[np.int32]:
    """The beam within its group of every place [G, n] among k candidates a beam; -1 where there is no place."""
    return np.where(places < 0, NO_CLASS, places // k).astype(np.int32)
