"""Proofs by bounds.onnx and numpy, where the native library or its arrays are missing."""

from __future__ import annotations

import math

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import DoubleArray, FloatArray, IdArray, PlanResult, empty_result
from shortlist.core.rounding import UNIT_ROUNDOFF, Rounding
from shortlist.kernels.proofs import ANCHOR_CLASSES, MAX_RESCORED_DIVISOR
from shortlist.plans.common.base import take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import find_largest
from shortlist.runtime.session import Graph

from .proof import (
    INFINITY,
    Normalizer,
    Proof,
    Rescored,
    RowBounds,
    bound_growth,
    count_first,
    cover_best,
    find_bar,
    mask_permitted,
    pad_best,
)

USELESS_SPREAD = 50.0  # nats: a bound that says nothing


class GraphProofs:
    """bounds.onnx: `context` [B, d] -> `estimate` [B, V], `spread` [B, 1]. Threads may share it.

    |logit_v - estimate_v| <= scale_v spread + floor. The normaliser is of exact logits for the anchors, the classes of
    the largest upper bounds, and of estimates for the rest.
    """

    def __init__(
        self, bundle: Bundle, scale: FloatArray, rounding: Rounding, rows: ExactRows, device: str, threads: int
    ) -> None:
        """Open the graph. scale: [V], of the bounds. rows: exact logits."""
        self.graph = Graph(bundle.graph("bounds"), device, threads, prepack=True)
        self.classes, self.scale, self.rounding, self.exact_rows = bundle.manifest.classes, scale, rounding, rows
        self.largest_scale = float(scale.max())
        self.powers = np.stack([np.ones_like(scale), scale, scale**2])

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, DoubleArray]:
        """The k best permitted classes of `contexts` [B, d], and by how many nats log-probabilities may be off, [B].

        An error that is infinite or NaN: the bounds do not decide the row, whose result is not to be used.
        """
        result, errors = empty_result(len(contexts), k), np.full(len(contexts), np.inf)
        for row, bounds in enumerate(self.bound_rows(contexts)):
            proof = self.prove_row(bounds, k, class_filter.slice_rows(row, row + 1))
            if proof is not None:
                result.put([row], proof.result)
                errors[row] = proof.error
        return result, errors

    def normalize(self, contexts: FloatArray) -> tuple[FloatArray, DoubleArray]:
        """Log-normalisers [B] of `contexts` [B, d], as of all proofs, and by how many nats they may be off, [B]."""
        values, errors = np.zeros(len(contexts), np.float32), np.full(len(contexts), np.inf)
        for row, bounds in enumerate(self.bound_rows(contexts)):
            anchors = self.rescore_anchors(bounds)
            normalizer = None if anchors is None else self.sum_logits(bounds, anchors)
            if normalizer is not None:
                values[row], errors[row] = normalizer.value, normalizer.error
        return values, errors

    def holds(self, contexts: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [B, V], computed in float32 for `contexts` [B, d], all lie within their bounds."""
        return all(
            row.holds(some, self.scale * np.float32(row.spread), self.rounding)
            for row, some in zip(self.bound_rows(contexts), logits, strict=True)
        )

    def bound_rows(self, contexts: FloatArray) -> list[RowBounds]:
        """The bounds of every row of `contexts` [B, d], at least one."""
        estimates, spreads = self.graph(context=contexts)
        return [
            RowBounds(context, estimate, spread)
            for context, estimate, spread in zip(contexts, estimates, spreads[:, 0].tolist(), strict=True)
        ]

    def prove_row(self, bounds: RowBounds, k: int, lists: ClassFilter) -> Proof | None:
        """The k best permitted classes of one row, whose lists are the first of `lists`; overwrites `bounds`.

        None where the bounds say nothing, leave too many classes, or overflow.
        """
        anchors = self.rescore_anchors(bounds)
        if anchors is None:
            return None
        rescored = self.rescore(bounds, anchors, k, lists)
        best = None if rescored is None else self.rank(bounds.context, rescored, k, lists)
        normalizer = self.sum_logits(bounds, anchors)
        if rescored is None or best is None or normalizer is None or rescored.ids.size == self.classes:
            return None  # where all classes were scored exactly, dense knows more
        covered = cover_best(normalizer.value, best[1])
        if covered is None:
            return None
        scored = np.array([rescored.ids.size], np.int32)
        result = PlanResult(best[0][None], best[1][None], np.array([covered], np.float32), scored)
        return Proof(result, normalizer.error + 2 * float(rescored.slack.max()))

    def rescore_anchors(self, bounds: RowBounds) -> Rescored | None:
        """The classes of the largest upper bounds, the same whatever is asked of the row: its normaliser's."""
        if not bounds.spread < USELESS_SPREAD / self.largest_scale:
            return None
        bounds.upper = self.scale * np.float32(bounds.spread)
        bounds.upper += bounds.estimate
        anchors = self.score_exactly(bounds.context, find_largest(bounds.upper, ANCHOR_CLASSES))
        return anchors if anchors.logits.max() < INFINITY else None

    def score_exactly(self, context: FloatArray, ids: IdArray) -> Rescored:
        """Exact logits and slacks of the ascending `ids` [n]."""
        return Rescored(ids, self.exact_rows.score_row(context, ids), self.rounding.measure_slack(context, ids))

    def rescore(self, bounds: RowBounds, anchors: Rescored, k: int, lists: ClassFilter) -> Rescored | None:
        """Every class that could be among the k best permitted ones, and the anchors; None for too many."""
        allowed = lists.restrict(bounds.upper, 0)
        count = count_first(k, self.classes)
        rescored = anchors
        if lists.restricts or count > anchors.ids.size:
            best = find_largest(allowed, count)
            rescored = self.score_exactly(bounds.context, np.union1d(anchors.ids, best[allowed[best] > -INFINITY]))
        bar = find_bar(rescored, lists, k)
        left = allowed >= bar
        left[rescored.ids] = False
        reaching = left.nonzero()[0]
        if not reaching.size:
            return rescored if rescored.logits.max() < INFINITY else None
        if reaching.size > max(ANCHOR_CLASSES, self.classes // MAX_RESCORED_DIVISOR):
            return None
        rescored = self.score_exactly(bounds.context, np.union1d(rescored.ids, reaching))
        return rescored if rescored.logits.max() < INFINITY else None

    def rank(
        self, context: FloatArray, rescored: Rescored, k: int, lists: ClassFilter
    ) -> tuple[IdArray, FloatArray] | None:
        """Ids and logits [k] of the best permitted classes, in the order of their logits in float64.

        Float64 is taken where float32 cannot tell; None where that is so and the bundle has no rows to do it with.
        """
        logits = mask_permitted(rescored, lists)
        contenders = (logits + rescored.slack >= find_bar(rescored, lists, k)).nonzero()[0]
        ids, best = rescored.ids[contenders], logits[contenders]
        gaps = -np.diff(np.sort(best)[::-1])
        if ids.size <= k and (gaps > 2 * rescored.slack[contenders].max(initial=0)).all():
            return take_best(best, ids, k)
        if self.exact_rows.double is None:
            return None
        order = np.lexsort((ids, -self.exact_rows.double.score_row(context, ids)))[:k]
        return pad_best(ids[order], np.minimum.accumulate(best[order]), k)

    def sum_logits(self, bounds: RowBounds, anchors: Rescored) -> Normalizer | None:
        """The log-normaliser, by the anchors' exact logits and all other classes' estimates; None where it overflows.

        Overwrites the estimates. With p_v = exp(estimate_v) of the other classes and b_v = scale_v spread, sum p_v
        exp(b_v) is at most sum p_v (1 + b_v + f b_v^2), f = (exp b - 1 - b) / b^2 at the largest b, which grows with b;
        and sum p_v exp(-b_v) is at least sum p_v exp(-mean b), mean by p, since exp is convex.
        """
        estimate, spread = bounds.estimate, bounds.spread
        peak = anchors.logits.max()
        inside = float(np.exp(anchors.logits - peak).sum())
        estimate -= peak
        estimate[anchors.ids] = -INFINITY
        np.exp(estimate, out=estimate)
        rest, first, second = (self.powers @ estimate).tolist()
        first, second = first * spread, second * spread**2
        most = inside + rest + first + bound_growth(spread * self.largest_scale) * second
        least = inside + (rest * math.exp(-first / rest) if rest else 0.0)
        if not most < math.inf:
            return None
        total = inside + rest
        value = float(peak) + math.log(total)
        error = max(math.log(most / total), math.log(total / least)) + self.rounding.floor + self.rounding.summed
        rounding = float(anchors.slack.max()) + 2 * UNIT_ROUNDOFF * abs(value)
        return Normalizer(value, error + rounding)
