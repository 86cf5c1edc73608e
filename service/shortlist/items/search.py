"""The k best of a head's classes and of changed items together, and the normaliser of both.

Why the answer is right: let A be the k best of the bundle's permitted classes that were not changed. A class of the
true top k is a changed item, or fewer than k such classes are before it, so that it is in A. So the k best of A and of
the changed items, whose scores are exact, are the true ones as far as A is: with a plan that is exact, exactly.

A is found by asking for a few more than k and dropping what was changed, or where too few are left, by a search that
all changed classes are banned of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import NamedTuple

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, BoolArray, FloatArray, IdArray, IntArray, PlanResult
from shortlist.core.row_lists import Lists, RowLists

from .overlay import NOT_CHANGED, Snapshot
from .table import repeat_rows

SCORE_BYTES = 8 << 20  # of the logits of changed items at a time
LEAST_SHARE = 1e-7  # of a normaliser: what float32 tells of it; less cannot be left of one
MOST_BANNED = 4096  # ids of a list that native loops look through for each item
# A normaliser that is off by a share e is off by e / s where a share s of it is left. So where s is under that error
# over what is tolerated, within these limits, what is left is summed anew.
LEAST_EXACT_SHARE, LEAST_ESTIMATED_SHARE, MOST_DOUBTFUL_SHARE = 0.01, 0.1, 0.5
EXACT_TOLERANCE_NATS, ESTIMATE_TOLERANCE_NATS = 1e-4, 0.1
EXACT_ERROR_SPACINGS = 4  # of float32 at an exact log-normaliser, by about which it is off
LEAST_NORMALIZER = np.finfo(np.float32).min  # of no class at all; -inf says that scores overflowed


class BaseLayer(NamedTuple):
    """What the bundle says of its own classes.

    score: contexts [b, d], ids [b, m] -> their exact logits [b, m]. sum_rest: contexts [b, d] -> [b] the log of the sum
    of exp(logit) over all classes that were not changed; None where the bundle has no dense layer. is_estimate: whether
    its normalisers are, but for those of rows that it answered by all classes. least_share: of an estimate that is
    left; less is summed anew.
    """

    score: Callable[[FloatArray, IdArray], FloatArray]
    sum_rest: Callable[[FloatArray], FloatArray] | None
    is_estimate: bool
    least_share: float = LEAST_ESTIMATED_SHARE


Search = Callable[[FloatArray, int, ClassFilter], PlanResult]  # contexts [b, d], k, their lists


class Question(NamedTuple):
    """What is asked: the k best of `contexts` [B, d]. base_lists: by which the bundle's classes are searched; lists."""

    contexts: FloatArray
    k: int
    base_lists: ClassFilter
    lists: ClassFilter

    def take(self, rows: IdArray) -> Question:
        """The question of some rows [b] alone."""
        return Question(self.contexts[rows], self.k, self.base_lists.take(rows), self.lists.take(rows))


def search_changed(
    search: Search,
    contexts: FloatArray,
    k: int,
    asked: int | None,
    class_filter: ClassFilter,
    changes: Snapshot,
    layer: BaseLayer,
) -> PlanResult:
    """The k best of a head's classes and of changed items. asked: of how many classes, None for a ban of all hidden.

    Where normalisers are estimates and lists only ban, one native call merges them: the same result but for
    what rounds, faster.
    """
    base_lists = keep_base_lists(class_filter, changes)
    hides = asked is None and changes.hidden.size
    base = search(contexts, asked or k, hide_changed(base_lists, changes) if hides else base_lists)
    lists = class_filter.without_marks()  # they know no items that were added
    question = Question(contexts, k, base_lists, lists)
    merge = changes.merge if layer.is_estimate and bans_few(lists) else None
    if merge is None:
        return merge_base(search, base, question, changes, layer)
    result = merge(base, contexts, k, lists)
    left = find_undecided(result, base, layer)
    if left.size:
        result.put(left, merge_base(search, base.take(left), question.take(left), changes, layer))
    return result


def find_undecided(merged: PlanResult, base: PlanResult, layer: BaseLayer) -> IdArray:
    """The rows [n] that a native call left undecided, or of whose estimates too little is left."""
    undecided = merged.scored < 0
    if layer.sum_rest is not None:
        undecided |= merged.log_normalizer - base.log_normalizer < log(layer.least_share)
    return undecided.nonzero()[0]


def choose_least_share(error: float) -> float:
    """The share of an estimated normaliser that has to be left of it, where it is off by `error` nats at most."""
    return min(max(error / ESTIMATE_TOLERANCE_NATS, LEAST_ESTIMATED_SHARE), MOST_DOUBTFUL_SHARE)


def choose_exact_shares(log_normalizer: FloatArray) -> FloatArray:
    """The shares [B] of exact normalisers that have to be left of them, for what float32 rounds of their logs [B]."""
    errors = EXACT_ERROR_SPACINGS * np.spacing(np.abs(log_normalizer))
    return np.clip(errors / EXACT_TOLERANCE_NATS, LEAST_EXACT_SHARE, MOST_DOUBTFUL_SHARE)


def bans_few(lists: ClassFilter) -> bool:
    """Whether there are no lists but of few banned classes."""
    bans = lists.ban, lists.hidden
    few = all(ids is None or (isinstance(ids, np.ndarray) and ids.shape[1] <= MOST_BANNED) for ids in bans)
    return few and lists.allow is None and lists.forced is None


def merge_base(search: Search, base: PlanResult, question: Question, changes: Snapshot, layer: BaseLayer) -> PlanResult:
    """The k best of the bundle's classes in `base` [B, n], of its others where too few are left, and of items."""
    contexts, k, base_lists, lists = question
    best, short = drop_changed(base, k, changes)
    if len(short) == len(contexts):
        best = search(contexts, k, hide_changed(base_lists, changes))
    elif short.size:
        best.put(short, search(contexts[short], k, hide_changed(base_lists.take(short), changes)))
    return merge_changed(best, contexts, changes, lists, layer)


def drop_changed(base: PlanResult, k: int, changes: Snapshot) -> tuple[PlanResult, IdArray]:
    """The k best classes in `base` [B, m] that were not changed; and the rows [n] of which too few are left."""
    kept = ~changes.mark_hidden(base.ids) | (base.ids < 0)
    if len(kept) == 1:  # at a third of the time
        places = kept[0].nonzero()[0][:k]
        ids, logits = base.ids[:, places], base.logits[:, places]
        short = np.arange(int(places.size < k))
    else:
        order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
        ids, logits = np.take_along_axis(base.ids, order, axis=1), np.take_along_axis(base.logits, order, axis=1)
        short = (kept.sum(axis=1) < k).nonzero()[0]
    return PlanResult(ids, logits, base.log_normalizer, base.scored, risk=base.risk), short


def keep_base_lists(class_filter: ClassFilter, changes: Snapshot) -> ClassFilter:
    """The filter by which the bundle's own classes are searched: without ids beyond them, and changed forced ones."""
    if not class_filter.restricts:
        return class_filter
    allow, ban = (keep_base_ids(lists, changes.base_classes) for lists in (class_filter.allow, class_filter.ban))
    permitted = class_filter.permitted
    if permitted is not None:
        permitted = permitted[: changes.base_classes]
        allow = None if allow is None else trim_members(allow)
    forced, hidden = class_filter.forced, class_filter.hidden
    if hidden is not None:
        hidden = np.where(hidden < changes.base_classes, hidden, NO_CLASS)
    if forced is not None:
        forced = np.where(changes.find_rows(np.maximum(forced, 0)) == NOT_CHANGED, forced, NO_CLASS)
    return replace(class_filter, allow=allow, ban=ban, forced=forced, hidden=hidden, permitted=permitted)


def hide_changed(class_filter: ClassFilter, changes: Snapshot) -> ClassFilter:
    """A filter of the bundle's own classes, by which none is found that was changed."""
    if class_filter.ban is None and class_filter.hidden is None and class_filter.forced is None:
        return replace(class_filter, ban=changes.hidden)  # searched fastest
    return class_filter.hide(changes.hidden)


def keep_base_ids(lists: Lists | None, classes: int) -> Lists | None:
    """The lists without the ids from `classes` on."""
    if lists is None:
        return None
    if not isinstance(lists, RowLists):
        return np.where(lists < classes, lists, NO_CLASS) if lists.size and lists.max() >= classes else lists
    return lists if lists.largest_id < classes else lists.keep_ids(lists.ids < classes, classes - 1)


def trim_members(members: Lists) -> Lists:
    """The list of a named set without padding, but for that of an empty one."""
    if not isinstance(members, np.ndarray) or members[0, -1] != NO_CLASS:
        return members
    return members[:, : max(1, int((members[0] != NO_CLASS).sum()))]


def merge_changed(
    base: PlanResult, contexts: FloatArray, changes: Snapshot, class_filter: ClassFilter, layer: BaseLayer
) -> PlanResult:
    """The k best of `base` [B, k], of classes that were not changed, and of the changed items."""
    step = max(1, SCORE_BYTES // (4 * (changes.size + changes.hidden.size + 1)))
    if len(contexts) <= step:
        return merge_rows(base, contexts, changes, class_filter, layer)
    k = base.ids.shape[1]
    parts = []
    for start in range(0, len(contexts), step):
        stop = start + step
        rows, lists = contexts[start:stop], class_filter.slice_rows(start, stop)
        parts.append(merge_rows(base.slice(start, stop, k), rows, changes, lists, layer))
    return PlanResult.concat(parts)


def merge_rows(
    base: PlanResult, contexts: FloatArray, changes: Snapshot, class_filter: ClassFilter, layer: BaseLayer
) -> PlanResult:
    """As `merge_changed`, of so few rows that all logits of changed items fit."""
    are_estimates = layer.is_estimate & (base.scored != changes.base_classes)
    logits = changes.score(contexts)
    added = changes.table.sum_logits(logits)
    normalizer = correct_normalizer(base.log_normalizer, contexts, added, are_estimates, changes, layer)
    merged = PlanResult(base.ids.copy(), base.logits.copy(), normalizer, count_scored(base, changes), risk=base.risk)
    if class_filter.forced is not None:
        blank_changed(merged, class_filter.forced, changes)
    for row, row_logits in enumerate(logits if changes.size else ()):
        merge_row(merged, row, row_logits, changes.ids, class_filter)
    merged.log_normalizer = np.maximum(normalizer, changes.table.sum_logits(merged.logits))  # they are distinct
    return merged


def count_scored(base: PlanResult, changes: Snapshot) -> IntArray:
    """[B] int32: `scored` with the changed items; V stays what says that dense answered."""
    classes = changes.base_classes
    more = np.minimum(base.scored + changes.size, classes - 1)
    scored: IntArray = np.where(base.scored == classes, classes, more).astype(np.int32)
    return scored


def blank_changed(result: PlanResult, forced: IdArray, changes: Snapshot) -> None:
    """Leave no class of the bundle to the rows whose one permitted class was changed."""
    rows = (forced >= 0) & (changes.find_rows(np.maximum(forced, 0)) != NOT_CHANGED)
    result.ids[rows], result.logits[rows] = NO_CLASS, -np.inf


def merge_row(result: PlanResult, row: int, logits: FloatArray, items: IdArray, class_filter: ClassFilter) -> None:
    """Put the changed items that are among the k best of a row into its answer. logits: [n], of `items` [n]."""
    k = result.ids.shape[1]
    least = result.logits[row, -1]
    places = (logits >= least).nonzero()[0]
    if least == -np.inf:
        places = places[logits[places] > -np.inf]
    if class_filter.restricts and places.size:
        places = places[class_filter.mask(items[places], row)]
    if not places.size:
        return
    if places.size > 4 * k:  # only so many can be among the best
        best = logits[places]
        places = places[best >= np.partition(best, -k)[-k]]
    kept = result.ids[row] >= 0
    ids = np.concatenate([result.ids[row, kept], items[places]])
    scores = np.concatenate([result.logits[row, kept], logits[places]])
    order = np.lexsort((ids, -scores))[:k]
    result.ids[row, : order.size], result.logits[row, : order.size] = ids[order], scores[order]


def sum_hidden(contexts: FloatArray, are_estimates: BoolArray, changes: Snapshot, layer: BaseLayer) -> FloatArray:
    """[B] the logs of the sums of exp(logit) over the bundle's classes that were changed; near ones of estimates."""
    if not changes.hidden.size:
        return np.full(len(contexts), -np.inf, np.float32)
    rows = changes.hidden_rows if are_estimates.any() else None
    if rows is None:
        return changes.table.sum_logits(layer.score(contexts, repeat_rows(changes.hidden, len(contexts))))
    sums, others = rows.sum(contexts), ~are_estimates
    if others.any():
        exact = layer.score(contexts[others], repeat_rows(changes.hidden, int(others.sum())))
        sums[others] = changes.table.sum_logits(exact)
    return sums


def correct_normalizer(
    log_normalizer: FloatArray,
    contexts: FloatArray,
    added: FloatArray,
    are_estimates: BoolArray,
    changes: Snapshot,
    layer: BaseLayer,
) -> FloatArray:
    """[B] float32: log-normalisers of the bundle's classes without those changed, and with the changed items.

    added: [B], logs of the sums of exp(logit) over the changed items. are_estimates: [B], of the normalisers. What is
    taken off are the scores of all hidden classes, though an estimate may have held others of them; where too little
    is left, all the rest is summed.
    """
    if not (changes.size or changes.hidden.size):
        return log_normalizer
    off = sum_hidden(contexts, are_estimates, changes, layer)
    peak = np.maximum(log_normalizer, added).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what overflows is refused by who asked
        old, more = np.exp(log_normalizer - peak), np.exp(added - peak)
        rest = old - np.exp(off - peak)
        least = np.where(are_estimates, layer.least_share, choose_exact_shares(log_normalizer))
        doubtful = np.flatnonzero(rest + more < least * old)
        rest = np.maximum(rest, LEAST_SHARE * old)
        if doubtful.size and layer.sum_rest is not None:
            rest[doubtful] = np.exp(layer.sum_rest(contexts[doubtful]) - peak[doubtful])
        corrected: FloatArray = (peak + np.log(rest + more)).astype(np.float32)
    return np.maximum(corrected, LEAST_NORMALIZER)
