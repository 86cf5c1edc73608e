"""The search for k classes that compiled loops are given, by the settings of the head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from shortlist.bundle.settings import LIST_LOOKS, MAX_EFFORT_K, GroupedSettings, Weights

from .effort import (
    GROUPED_CANDIDATES_PER_K,
    MOST_RAISED_K,
    Search,
    find_bars,
    list_looks,
    list_marked_looks,
)


class Question(NamedTuple):
    """What is asked of a search: k classes.

    restricts: whether there are lists. has_exact: whether something answers rows exactly that the search leaves.
    marked: how many classes marks permit; 0 without marks.
    """

    k: int
    restricts: bool
    has_exact: bool
    marked: int = 0


def plan_search(settings: GroupedSettings, classes: int, most_listed: int, question: Question) -> Search:
    """How loops look for classes: as the settings say, and further where there are lists or a promise.

    classes: how many the head has. most_listed: as in `Search`.
    """
    k, restricts, has_exact, marked = question
    looks = list_marked_looks(settings, k, classes, marked) if marked else list_looks(settings, k, classes)
    make = prepare_search(settings, most_listed, k)
    if settings.promise is not None:
        by_lists = bool(settings.list_effort)
        make = partial(make, **find_bars(settings.promise, k, has_exact=has_exact, has_list_effort=by_lists))
        is_alone = marked and looks[0] == looks[1]  # the last look in place of the first
        effort, ban_effort = find_efforts(settings, k)
        if is_alone:
            effort, ban_effort = (part[1:LIST_LOOKS] * len(looks) for part in (effort, ban_effort))
        weights = effort[: len(looks)]
        # for more classes nothing tells what was missed
        some = slice(None) if k <= MAX_EFFORT_K else slice(0 if restricts else 1, LIST_LOOKS)
        make = partial(make, list_weights=settings.list_effort, ban_weights=ban_effort, list_looks=LIST_LOOKS)
        return make(looks[some], weights=weights[some])
    if is_wide(settings, k, classes):  # the first look gives the normaliser, the same for every such k
        first = list_looks(settings, 1, classes)[0]._replace(full_view=settings.full_view)
        return make((first, looks[1]))
    return make(looks[:LIST_LOOKS] if restricts else looks[:1], free_looks=1)


def prepare_search(settings: GroupedSettings, most_listed: int, k: int) -> Callable[..., Search]:
    """A search for k classes by looks that are given."""
    by_bans = partial(Search, deep_bans=settings.deep_bans, most_bans=settings.most_bans)
    fitted, opened = count_tail_candidates(settings), settings.opened_per_depth
    return partial(by_bans, k=k, fitted=fitted, most_listed=most_listed, opened_per_depth=opened)


def count_tail_candidates(settings: GroupedSettings) -> int:
    """How many of the best classes the tail was fitted beside."""
    return settings.tail_beside or settings.candidates


def is_wide(settings: GroupedSettings, k: int, classes: int) -> bool:
    """Whether k asks for more candidates than the normaliser's guess of the rest was fitted for, or there are."""
    return GROUPED_CANDIDATES_PER_K * k > settings.candidates or k > classes


def find_efforts(settings: GroupedSettings, k: int) -> tuple[tuple[Weights, ...], tuple[Weights, ...]]:
    """The weights of looks for k classes: at rows of all kinds, and at those whose own best classes are banned."""
    is_many = k > MOST_RAISED_K
    return (
        (is_many and settings.wide_effort) or settings.effort,
        (is_many and settings.wide_ban_effort) or settings.ban_effort,
    )
