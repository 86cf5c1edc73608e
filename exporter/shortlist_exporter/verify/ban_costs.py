"""From how many bans of a row's own best classes on an exact answer takes less time than looks past them."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from shortlist.bundle.settings import GroupedSettings, PlanSettings
from shortlist.core.results import FloatArray, IdArray
from shortlist.head import CROSSOVER_K, Head
from shortlist.plans.common.crossover import time_call

BANNED = 1, 5, 10, 20, 50, 100, 150, 200, 400, 800  # of a row's own best classes, that are timed
TIMED_ROWS, TIMED_CALLS = 24, 3  # of each row the fastest of some calls counts: others were disturbed
WORTHWHILE_SHARE = 0.8  # of an exact answer's time, at most: for one class and for 100 a search takes more than for 5
WORTHWHILE_FACTOR = 4  # times a search without lists, which an exact answer takes at most where many bans ask for it


def choose_ban_limits(head: Head, contexts: FloatArray) -> PlanSettings:
    """The settings of `head`; of a `grouped` one that keeps a promise with limits of bans, timed on contexts [n, d].

    deep_bans: the largest number of `BANNED` up to which the search takes at most `WORTHWHILE_SHARE` of the time of
    exact answers; 0 where one ban makes it take more. Where the head is asked for too few classes to time all numbers
    and none makes it take more, it is at least what it was. most_bans: the same number where exact answers take at most
    `WORTHWHILE_FACTOR` times a search without lists, else None. Both are as they are where nothing answers exactly, and
    where there are no loops to time.
    """
    settings, most_k = head.manifest.settings, head.manifest.max_k
    k, rows = min(CROSSOVER_K, most_k), contexts[:TIMED_ROWS]
    numbers = [banned for banned in BANNED if banned + k <= most_k]
    answers_both = head.kernels is not None and head.exact is not None
    if not isinstance(settings, GroupedSettings) or settings.promise is None or not answers_both or not numbers:
        return settings
    best = head.topk(rows, max(numbers), exact=True).ids
    searching = head.with_all_settings(settings.model_copy(update={"deep_bans": max(BANNED)}))

    def is_search_faster(banned: int) -> bool:
        own, exact = time_ways(searching, rows, k, best[:, :banned])
        return own <= WORTHWHILE_SHARE * exact

    fast = list(takewhile(is_search_faster, numbers))
    deep = max(fast, default=0) if fast != numbers else max(settings.deep_bans, *fast)
    plain, exact = time_ways(head, rows, k, None)
    most = deep if exact <= WORTHWHILE_FACTOR * plain else None
    return settings.model_copy(update={"deep_bans": deep, "most_bans": most})


def time_ways(head: Head, contexts: FloatArray, k: int, bans: IdArray | None) -> tuple[float, float]:
    """Seconds that a search and an exact answer take, for contexts [n, d] one at a time, each with its bans [n, m]."""

    def time_way(row: int, *, exact: bool) -> float:
        ban = None if bans is None else bans[row]
        return time_call(lambda context: head.topk(context, k, ban=ban, exact=exact), contexts[row : row + 1])

    own, exact = (
        float(np.mean([min(time_way(row, exact=exact) for _ in range(TIMED_CALLS)) for row in range(len(contexts))]))
        for exact in (False, True)
    )
    return own, exact
