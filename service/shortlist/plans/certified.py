"""Plan `certified`: exact requests, answered without the dense layer where bounds prove the answer.

What is proved: the k classes returned, and their order, are those of the logits in float64, equal ones by lower id; and
no log-probability is off by more than the certificate's bound. Let Z_v be what rows.onnx or its loops give for a class,
in float32, and z_v the true logit. A sum of d products, a bias, a factor and their roundings obey |Z_v - z_v| <=
gamma |(w_v, b_v)| |(h, 1)|, gamma = n u / (1 - n u), u = 2^-24, n = d + 4, in whatever order they are summed (Higham,
Accuracy and Stability, 3.1), Cauchy-Schwarz being applied to sum |w_vj h_j|. A soft-cap divides, takes tanh and
multiplies: its slope is at most 1, and tanh, ONNX Runtime's or numpy's, is off by less than `TANH_ERROR`. All of this
is a class's slack. Hence k classes are at least the k-th largest of Z_v - slack_v, and a class whose upper bound is
under that is not among the best k. Rescored classes whose Z lie within their slacks are ranked in float64. Rows that
the bounds do not decide cheaply are answered by dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import CERTIFICATE_FILE, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.exact_rows import COMPILED_THREADS, ExactRows
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.plans.common.open_kernel import open_kernel
from shortlist.plans.common.selection import find_largest
from shortlist.runtime.session import Graph

from .proof import (
    INFINITY,
    Normalizer,
    Proof,
    Rescored,
    RowBounds,
    bound_growth,
    find_bar,
    mask_permitted,
    measure_size,
    pad_best,
)

if TYPE_CHECKING:
    from shortlist.kernels.bounds import CompiledBounds

FIRST_RESCORED_CLASSES = 32  # rescored at once: mostly all that the bounds leave, and much of the normaliser
FIRST_RESCORED_PER_K = 2  # and at least 2 k of them
MAX_RESCORED_DIVISOR = 16  # of V / 16 classes and more dense is as fast as rescoring
UNIT_ROUNDOFF = 2.0**-24  # of float32
TANH_ERROR = 1e-6  # of a float32 tanh, absolute
UNDERFLOW_ERROR = 1e-30  # absolute: more than all that underflows in float32 can be off by
ESTIMATE_BYTES = 16 << 20  # estimates of one chunk of rows
ROUNDING_SPARE = 1 + 1e-5  # for the roundings of what bounds roundings
USELESS_SPREAD = 50.0  # nats: a bound that says nothing
EXPONENTIAL_ERROR = 1e-5  # nats: what a difference to the largest logit and its exponential lose in float32

Bounds = Callable[..., Sequence[FloatArray]]  # context [B, d] -> estimates [B, V], spreads [B, 1]


def open_bounds(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> CompiledBounds | None:
    from shortlist.kernels.bounds import CompiledBounds

    return CompiledBounds.open(bundle, arrays, threads)


class CertifiedPlan(Plan):
    """bounds.onnx: `context` [B, d] -> `estimate` [B, V], `spread` [B, 1]; rows.onnx; dense for undecided rows.

    |logit_v - estimate_v| <= scale_v spread + floor. The normaliser is `bounded`: exact logits for the rescored
    classes, estimates for the rest. It is off by `tolerance` nats at most, else dense answers. On CPU alone.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open what gives bounds, and rows.onnx. fallback: the dense head, which must be there."""
        assert fallback is not None
        manifest, self.dense = bundle.manifest, fallback
        self.classes = manifest.classes
        certificate = manifest.certificate  # none while the export still measures
        self.tolerance = math.inf if certificate is None else certificate.logprob_bound
        self.crossover = None if certificate is None else certificate.dense_crossover
        arrays = bundle.tensors(CERTIFICATE_FILE)
        may_compile = threads <= COMPILED_THREADS
        loops = open_kernel(lambda: open_bounds(bundle, arrays, threads)) if may_compile else None
        self.bounds: Bounds = loops or Graph(bundle.graph("bounds"), device, threads, prepack=True)
        self.rows = ExactRows(bundle, device, threads)
        self.scale: FloatArray = arrays["scale"]
        self.largest_scale = float(self.scale.max())
        self.powers = np.stack([np.ones_like(self.scale), self.scale, self.scale**2])
        operations = manifest.dim + 4
        gamma = operations * UNIT_ROUNDOFF / (1 - operations * UNIT_ROUNDOFF)
        self.rounding: FloatArray = arrays["norms"] * np.float32(gamma * ROUNDING_SPARE)
        self.floor = ROUNDING_SPARE * (
            float(arrays["floor"][0]) + UNDERFLOW_ERROR + 4 * TANH_ERROR * (manifest.soft_cap or 0.0)
        )
        self.summed = self.classes * UNIT_ROUNDOFF + EXPONENTIAL_ERROR  # sums of V positive terms, in whatever order

    def count_first(self, k: int) -> int:
        """How many classes are rescored before anything is known."""
        return min(self.classes, max(FIRST_RESCORED_CLASSES, FIRST_RESCORED_PER_K * k))

    def prefers_dense(self, k: int) -> bool:
        return self.count_first(k) > max(FIRST_RESCORED_CLASSES, self.classes // MAX_RESCORED_DIVISOR)

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of rescored classes, V where dense answered."""
        if not len(contexts):  # ONNX Runtime multiplies no matrices without rows
            return empty_result(0, k)
        results = []
        for row, bounds in enumerate(self.bound_rows(contexts)):
            lists = class_filter.slice_rows(row, row + 1)
            proof = self.prove_row(bounds, k, lists)
            if proof is not None and proof.error <= self.tolerance:
                results.append(proof.result)
            else:
                results.append(self.dense.topk(contexts[row : row + 1], k, lists))
        return PlanResult.concat(results)

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """As `topk` for any k and lists; dense's where `ids` might be off by more than the tolerance."""
        result = np.empty(len(contexts), np.float32)
        for row, bounds in enumerate(self.bound_rows(contexts) if len(contexts) else ()):
            anchors = self.rescore_anchors(bounds)
            normalizer = None if anchors is None else self.normalize(bounds, anchors)
            slack = self.measure_slack(bounds.context, np.maximum(ids[row], 0))
            if normalizer is not None and normalizer.error + 2 * float(slack.max(initial=0)) <= self.tolerance:
                result[row] = normalizer.value
            else:
                some = np.s_[row : row + 1]
                result[some] = self.dense.compute_log_normalizer(contexts[some], ids[some], logits[some])
        return result

    def bound_rows(self, contexts: FloatArray) -> Iterator[RowBounds]:
        """The bounds of every row of `contexts` [B, d], at least one."""
        estimates, spreads = self.bounds(context=contexts)
        for context, estimate, spread in zip(contexts, estimates, spreads[:, 0].tolist(), strict=True):
            yield RowBounds(context, estimate, spread)

    def prove_row(self, bounds: RowBounds, k: int, lists: ClassFilter) -> Proof | None:
        """The k best permitted classes of one row, whose lists are the first of `lists`; overwrites `bounds`.

        None where the bounds say nothing, leave too many classes, or overflow.
        """
        anchors = self.rescore_anchors(bounds)
        if anchors is None:
            return None
        rescored = self.rescore(bounds, anchors, k, lists)
        best = None if rescored is None else self.rank(bounds.context, rescored, k, lists)
        normalizer = self.normalize(bounds, anchors)
        if rescored is None or best is None or normalizer is None:
            return None
        ids, logits = best
        covered = np.maximum(np.float32(normalizer.value), log_sum_exp(rescored.logits.copy()))
        scored = np.array([rescored.ids.size], np.int32)
        result = PlanResult(ids[None], logits[None], np.array([covered], np.float32), scored)
        return Proof(result, normalizer.error + 2 * float(rescored.slack.max()))

    def rescore_anchors(self, bounds: RowBounds) -> Rescored | None:
        """The classes of the largest upper bounds, the same whatever is asked of the row: its normaliser's."""
        if not bounds.spread < USELESS_SPREAD / self.largest_scale:
            return None
        bounds.upper = self.scale * np.float32(bounds.spread)
        bounds.upper += bounds.estimate
        anchors = self.score_exactly(bounds.context, find_largest(bounds.upper, FIRST_RESCORED_CLASSES))
        return anchors if anchors.logits.max() < INFINITY else None

    def score_exactly(self, context: FloatArray, ids: IdArray) -> Rescored:
        """Exact logits and slacks of the ascending `ids` [n]."""
        return Rescored(ids, self.rows.score_row(context, ids), self.measure_slack(context, ids))

    def measure_slack(self, context: FloatArray, ids: IdArray) -> FloatArray:
        """By how much float32 logits of `ids` [n] may be off, [n]."""
        slack: FloatArray = self.rounding[ids]
        slack *= np.float32(measure_size(context))
        slack += np.float32(self.floor)
        return slack

    def rescore(self, bounds: RowBounds, anchors: Rescored, k: int, lists: ClassFilter) -> Rescored | None:
        """Every class that could be among the k best permitted ones, and the anchors; None for too many."""
        allowed = lists.restrict(bounds.upper, 0)
        count = self.count_first(k)
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
        if reaching.size > max(FIRST_RESCORED_CLASSES, self.classes // MAX_RESCORED_DIVISOR):
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
        if self.rows.double is None:
            return None
        order = np.lexsort((ids, -self.rows.double.score_row(context, ids)))[:k]
        return pad_best(ids[order], np.minimum.accumulate(best[order]), k)

    def normalize(self, bounds: RowBounds, anchors: Rescored) -> Normalizer | None:
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
        error = max(math.log(most / total), math.log(total / least)) + self.floor + self.summed
        rounding = float(anchors.slack.max()) + 2 * UNIT_ROUNDOFF * abs(value)
        return Normalizer(value, error + rounding)

    def measure_error(self, context: FloatArray, k: int) -> tuple[float, int]:
        """By how many nats log-probabilities of `context` [d] may be off, and how many classes are rescored for it.

        NaN and 0 where the bounds do not decide the k best classes. For measuring the bounds.
        """
        proof = self.prove_row(next(self.bound_rows(context[None])), k, UNRESTRICTED)
        return (math.nan, 0) if proof is None else (proof.error, int(proof.result.scored[0]))

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [V], computed in float32 for `context` [d], all lie within their bounds."""
        estimates, spreads = self.bounds(context=context[None])
        real = logits > -INFINITY
        most = (self.scale * spreads[0] + self.rounding * np.float32(measure_size(context)) + np.float32(self.floor))[
            real
        ]
        return bool((np.abs(estimates[0][real] - logits[real]) <= most).all())

    def max_rows(self) -> int:
        return chunk_rows(self.classes, ESTIMATE_BYTES)
