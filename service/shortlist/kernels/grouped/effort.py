"""How far a search of plan `grouped` looks: looks that go further and further, until enough was found."""

from __future__ import annotations

from ctypes import byref
from functools import lru_cache
from math import ceil, inf, log, log10
from typing import Any, NamedTuple

import numpy as np

from shortlist.bundle.settings import (
    DEEP_BANS,
    LIST_LOOKS,
    MOST_OPENED_PER_DEPTH,
    PREVIEWED_DIVISOR,
    GroupedSettings,
)
from shortlist.kernels.lists import MOST_LISTED

from .tables import LookStruct, SearchStruct

GROUPED_CANDIDATES_PER_K = 12  # a request for k classes has at least 12 k candidates
GROUPED_EXACT_PER_K = 1.3  # and 1.3 k exact scores
NARROW_K = 10  # classes asked for, up to which a first look is as wide as for one
SECOND_LOOK_SHARE, SECOND_LOOK_SHARE_FOR_ONE = 1 / 2, 2 / 3  # of all classes, that it opens for k over 1 and for 1
SECOND_LOOK_OPENED_FACTOR = 2  # of the first look's, at most where that is less than half of millions of classes
SMALL_SECOND_LOOK_OPENED = 1 << 18  # but no fewer
SECOND_LOOK_CANDIDATES_FACTOR = 3  # of the first look's
SMALL_CANDIDATES_FACTOR, SMALL_SECOND_LOOK_CANDIDATES = 4, 768  # of few, up to so many, a larger factor
SECOND_LOOK_OPENED_PER_K = 600  # at least, for up to MOST_OPENED_K classes
MOST_OPENED_K = 40
SECOND_LOOK_CANDIDATES_PER_K = 10
WIDE_SECOND_LOOK_FACTOR = 1.5  # of what a first look for many classes opens, and of its candidates, at least
WIDEST_LOOK_SHARE = 5 / 6  # of all classes, that a look opens at rows that stay doubtful otherwise
WIDEST_LOOK_PREVIEWED_SHARE = 4 / 5  # of these, that it previews by all columns
WIDEST_LOOK_FACTOR = 3  # its candidates to the second look's; of millions of classes what it opens, too
LEAST_SAVING = 0.75  # a first look that opens a larger share of what the last does is not worth its time
MOST_RAISED_K = 16  # previews are raised by half for more: rare classes would push out many that are only likely
# Times the odds of 1 less the promise for each of k classes, up to the second number: over them a row looks further.
# Of several classes a larger share may be missed: the best of them is missed least often. How many rows look further
# was chosen by kinds of text that nothing was fitted on (docs/log/effort.md).
MISS_ODDS_PER_CLASS, MOST_MISS_ODDS = 1.0, 2.0
# The same of rows that are answered exactly, since they are over these odds after the last look: with lists over more.
DOUBT_ODDS_PER_CLASS, MOST_DOUBT_ODDS, LIST_DOUBT_FACTOR = 2, 3, 2
EFFORT_FEATURES = 14  # of a look, as `describe_look` of native/grouped/effort.h lists them
SIZE_FEATURES = (0, 9, 10)  # those that are logarithms of sizes: a context c times as long adds log(c) to each
NO_NUMBER = -1  # in place of `most_bans`
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

    looks: each goes at least as far as the one before. free_looks: how many of them a row takes at most whose lists
    forbid next to nothing, or that has none; 0: all. list_looks: the same of any other row. fitted: the number of
    candidates beside which the tail was fitted.
    weights: of each look, `EFFORT_FEATURES` and a constant: the log-odds that some of the k best were missed; none
    where the search was not calibrated, so that the last look decides. bar: log-odds over which the next look is taken.
    list_weights: those of the last look of any other row, where they are not the same. ban_weights: of each look, the
    same of rows of whose own best classes bans forbid some, where it states more; these take as many looks as rows
    without lists.
    doubt_bar: log-odds over which a row gets INFINITY for them after the last look, since it should be answered
    exactly; inf where nothing can. list_doubt_bar: the same of rows whose lists forbid more than next to nothing.
    most_listed: of so few permitted classes all are scored. opened_per_depth: classes that a later look opens for each
    banned one in front of a row's best. deep_bans: of more of these an exact answer takes less time than looks.
    most_bans: with more bans, wherever they are, a row is answered exactly; 0: with any lists; None: with none.
    """

    looks: tuple[Look, ...]
    k: int
    fitted: int
    weights: tuple[tuple[float, ...], ...] = ()
    bar: float = 0.0
    list_weights: tuple[float, ...] = ()
    ban_weights: tuple[tuple[float, ...], ...] = ()
    doubt_bar: float = inf
    list_doubt_bar: float = inf
    most_listed: int = MOST_LISTED
    free_looks: int = 0
    list_looks: int = 0
    opened_per_depth: int = MOST_OPENED_PER_DEPTH
    deep_bans: int = DEEP_BANS
    most_bans: int | None = None


@lru_cache(maxsize=256)
def make_search(search: Search) -> Any:
    """Return a pointer to the struct of a search, which keeps what it points at."""
    limits = (LookStruct * len(search.looks))(
        *(LookStruct(*(min(limit, MAX_LIMIT) for limit in look)) for look in search.looks)
    )
    free_looks, list_looks = (
        min(count or len(limits), len(limits)) for count in (search.free_looks, search.list_looks)
    )
    own = search.weights[list_looks - 1] if search.weights else ()
    parts = search.weights, (search.list_weights or own,), search.ban_weights
    weights = tuple(np.array(part if search.weights else (), np.float32) for part in parts)
    addresses = (part.ctypes.data if part.size else None for part in weights)
    bars = search.bar, search.doubt_bar, search.list_doubt_bar
    most_bans = NO_NUMBER if search.most_bans is None else search.most_bans
    counts = search.k, search.fitted, search.most_listed, search.opened_per_depth, search.deep_bans, most_bans
    struct = SearchStruct(limits, *addresses, free_looks, list_looks, *counts, *bars)
    struct.weights_arrays = weights
    return byref(struct)


def count_second_candidates(settings: GroupedSettings) -> int:
    """How many candidates the second look at a row has, where few classes are asked for."""
    few = min(SMALL_CANDIDATES_FACTOR * settings.candidates, SMALL_SECOND_LOOK_CANDIDATES)
    return max(SECOND_LOOK_CANDIDATES_FACTOR * settings.candidates, few)


def list_looks(settings: GroupedSettings, k: int, classes: int) -> tuple[Look, ...]:
    """The looks that a search for k of `classes` classes takes one after the other.

    The first is as set; the second is among half of all classes or, of millions, among twice as many as the first.
    Where one class is asked for it is among two thirds: few rows take it, and what these miss is their whole answer.
    The third is among nearly all, which takes a fraction of an exact answer's time. Lists and a promise decide whether
    a row gets the second, and a promise whether it gets the third.
    """
    full_view = max(settings.full_view, ceil(GROUPED_EXACT_PER_K * k))
    many_k = max(0, k - NARROW_K)
    wide = settings.opened_per_k * many_k
    first_opened = max(settings.classes_opened, wide)
    first_previewed = max(settings.classes_previewed, wide // PREVIEWED_DIVISOR)
    first_candidates = max(settings.candidates + settings.candidates_per_k * many_k, full_view)
    wider_candidates = ceil(WIDE_SECOND_LOOK_FACTOR * first_candidates)
    candidates = max(count_second_candidates(settings), SECOND_LOOK_CANDIDATES_PER_K * k, wider_candidates, full_view)
    many = max(SMALL_SECOND_LOOK_OPENED, SECOND_LOOK_OPENED_FACTOR * settings.opened)
    share = min(int(classes * (SECOND_LOOK_SHARE if k > 1 else SECOND_LOOK_SHARE_FOR_ONE)), many)
    wanted = max(SECOND_LOOK_OPENED_PER_K * min(k, MOST_OPENED_K), ceil(WIDE_SECOND_LOOK_FACTOR * wide))
    opened = max(share, wanted, settings.opened, candidates)
    previewed = max(opened // PREVIEWED_DIVISOR, settings.previewed, candidates)
    raise_share = 1.0 if k <= MOST_RAISED_K else 0.5
    second = Look(opened, previewed, candidates, full_view, raise_share)
    return (
        Look(first_opened, first_previewed, first_candidates, full_view, raise_share),
        second,
        widen_look(second, classes),
    )


def widen_look(look: Look, classes: int) -> Look:
    """A look among nearly all of V `classes` or, of millions, among so many more than `look`."""
    opened = max(look.opened, min(int(WIDEST_LOOK_SHARE * classes), WIDEST_LOOK_FACTOR * look.opened))
    previewed = max(look.previewed, int(WIDEST_LOOK_PREVIEWED_SHARE * opened))
    return look._replace(opened=opened, previewed=previewed, candidates=WIDEST_LOOK_FACTOR * look.candidates)


def find_bars(promise: float, k: int, *, has_exact: bool, has_list_effort: bool) -> dict[str, float]:
    """The bars of a search for k classes that keeps a promise, by the names they have in `Search`.

    has_exact: whether something answers rows exactly. has_list_effort: whether rows with lists have weights of their
    own, without which none is answered exactly for its lists.
    """
    odds = log(1 - promise) - log(promise)
    bars = {"bar": odds + log(min(MISS_ODDS_PER_CLASS * k, MOST_MISS_ODDS))}
    doubt = odds + log(min(DOUBT_ODDS_PER_CLASS * k, MOST_DOUBT_ODDS))
    if has_exact:
        bars["doubt_bar"] = doubt
    if has_exact and has_list_effort:
        bars["list_doubt_bar"] = doubt + log(LIST_DOUBT_FACTOR)
    return bars


def list_marked_looks(settings: GroupedSettings, k: int, classes: int, permitted: int) -> tuple[Look, ...]:
    """As `list_looks`, where marks permit so many of the classes: as far as for all that hold k of these, and further.

    Where the first look is nearly as wide as the last, the last is taken alone but for rows whose best classes are
    forbidden.
    """
    share = permitted / classes
    (first, last, _), plain = list_looks(settings, ceil(k / share), classes), list_looks(settings, k, classes)
    factor = 1 - log10(share) ** 3  # twice as far for a tenth of all, hardly further for half of them
    opened, previewed, candidates = (
        ceil(factor * limit) for limit in (first.opened, first.previewed, first.candidates)
    )
    last = last._replace(candidates=max(candidates, last.candidates))
    wider = first._replace(opened=opened, previewed=previewed, candidates=candidates)
    first = wider if opened < LEAST_SAVING * last.opened else last
    return tuple(
        look._replace(full_view=other.full_view, raise_share=other.raise_share)
        for look, other in zip((first, last), plain[:LIST_LOOKS], strict=True)
    )
