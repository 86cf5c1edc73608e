"""Which way of `list_ways` finds the best classes of a row with lists at the least cost.

It is a function of the row's k, of how many classes its lists leave, and of costs that the export timed.
"""

from __future__ import annotations

from math import ceil, sqrt

from shortlist.bundle.list_costs import ListCosts
from shortlist.kernels.lists import MAX_BANS

from .base import Plan
from .list_costs import MOST_ASKED, estimate_asked, estimate_listed

SPREADS = 2.5  # so many standard deviations more are asked for than are needed where lists are no matter of scores
OWN, LISTED, EXACT = 0, -1, -2  # ways; all others are the number of classes that are asked for


class WayChoice:
    """Chooses by estimates of what each way costs. classes: V.

    It does not refer to `ListWays`, which remembers its choices: a cycle of references would keep the memory of a head
    that was unloaded until the garbage collector looks for cycles, which it hardly does in an idle server.
    """

    def __init__(self, plan: Plan, classes: int, costs: ListCosts) -> None:
        self.plan, self.classes, self.costs = plan, classes, costs

    def choose_way(self, k: int, permitted: int, is_listed: bool) -> int:
        """The way that costs least to find k of so many `permitted` classes. is_listed: they are of an allow list."""
        is_short = permitted <= self.plan.most_listed if is_listed else self.classes - permitted <= MAX_BANS
        if is_short or permitted < k:
            return OWN
        depth = count_asked(k, permitted / self.classes)
        microseconds = self.estimate_sure_ways(k, permitted) if is_listed else {}
        if depth <= min(MOST_ASKED, self.classes) and not self.plan.prefers_dense(depth):
            is_blind = self.plan.estimates_misses(k) and not self.plan.estimates_misses(depth)
            microseconds[OWN if is_blind else depth] = estimate_asked(self.costs, depth)  # which take about as long
        return min(microseconds, key=lambda way: microseconds[way], default=OWN)

    def choose_sure_way(self, k: int, permitted: int, is_listed: bool) -> int:
        """The way for a row that asked for more in vain: its lists exclude so many of its best classes."""
        if not is_listed:
            return OWN
        microseconds = self.estimate_sure_ways(k, permitted)
        return min(microseconds, key=lambda way: microseconds[way])

    def estimate_sure_ways(self, k: int, permitted: int) -> dict[int, float]:
        """Microseconds of the ways that find k of an allow list of so many classes, whatever it holds."""
        ways = {LISTED: estimate_listed(self.costs, permitted)}
        if self.costs.exact is not None and self.plan.find_exact(k) is not None:
            ways[EXACT] = self.costs.exact
        return ways


def count_asked(k: int, share: float) -> int:
    """How many of the best classes hold k permitted ones, almost surely, where a `share` of all are permitted."""
    spread = SPREADS * sqrt(k * max(0.0, 1 - share))
    return ceil((k + spread + 2 * (share < 1)) / share)
