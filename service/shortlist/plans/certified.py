"""Plan `certified`: exact requests, answered without the dense layer where bounds prove the answer.

What is proved: no class that was not rescored has a larger logit than the k classes returned have, in real numbers.
Let Z_v be what rows.onnx or its loops give for a class, in float32, and z_v the true logit. A sum of d products, a
bias, a factor and their roundings obey |Z_v - z_v| <= gamma |(w_v, b_v)| |(h, 1)|, gamma = n u / (1 - n u), u =
2^-24, n = d + 4, in whatever order they are summed (Higham, Accuracy and Stability, 3.1), Cauchy-Schwarz being
applied to sum |w_vj h_j|. A soft-cap divides, takes tanh and multiplies: its slope is at most 1, and tanh, ONNX
Runtime's or numpy's, is off by less than `TANH_ERROR`. Hence k classes are at least the k-th largest of Z_v - slack_v
- floor, and a class whose upper bound is under that is not among the best k. Rows that the bounds do not decide
cheaply are answered by dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import CERTIFICATE_FILE, Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.exact_rows import COMPILED_THREADS, ExactRows
from shortlist.plans.common.open_kernel import open_kernel
from shortlist.plans.common.selection import find_largest, find_nth_largest
from shortlist.runtime.session import Graph

if TYPE_CHECKING:
    from shortlist.kernels.bounds import CompiledBounds

FIRST_RESCORED_CLASSES = 32  # rescored at once: mostly all that the bounds leave, and much of the normaliser
FIRST_RESCORED_PER_K = 2  # and at least 2 k of them
MAX_RESCORED_DIVISOR = 16  # of V / 16 classes and more dense is as fast as rescoring
UNIT_ROUNDOFF = 2.0**-24  # of float32
TANH_ERROR = 1e-6  # of a float32 tanh, absolute
UNDERFLOW_ERROR = 1e-30  # absolute: more than all that underflows in float32 can be off by
ESTIMATE_BYTES = 16 << 20  # estimates of one chunk of rows
INFINITY = np.float32(np.inf)
LOWEST_FLOAT32: np.float32 = np.finfo(np.float32).min
UNDECIDED = math.nan, math.nan  # the log-normaliser and its error, of a row that the bounds do not decide
ROUNDING_SPARE = 1 + 1e-5  # for the roundings of what bounds roundings
SMALL_SPREAD, USELESS_SPREAD = 1e-3, 50.0  # nats: a bound that needs no growth, and one that says nothing
MAX_CONTEXT_NORM = 1e30  # norm of a context that float32 can surely work with
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
        """Open what gives bounds, and rows.onnx."""
        manifest, self.fallback = bundle.manifest, fallback
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
        result = empty_result(len(contexts), k)
        if not len(contexts):  # ONNX Runtime multiplies no matrices without rows
            return result
        estimates, spreads = self.bounds(context=contexts)
        for row, estimate in enumerate(estimates):
            middle, error = self.search_row(contexts[row], estimate, float(spreads[row, 0]), class_filter, row, result)
            if error <= self.tolerance:
                result.log_normalizer[row] = middle
            else:
                self.search_row_by_dense(contexts, class_filter, row, result)
        return result

    def search_row(
        self,
        context: FloatArray,
        estimate: FloatArray,
        spread: float,
        class_filter: ClassFilter,
        row: int,
        result: PlanResult,
    ) -> tuple[float, float]:
        """One row into `result`; returns its log-normaliser and by how much that may be off.

        estimate: [V], overwritten. NaN where the bounds say nothing, leave too many classes, or overflow.
        """
        if not spread < USELESS_SPREAD / self.largest_scale:
            return UNDECIDED
        upper = self.scale * np.float32(spread)
        upper += estimate
        rescored = self.rescore(context, upper, class_filter, row, result.ids.shape[1])
        if rescored is None:
            return UNDECIDED
        ids, exact = rescored
        result.scored[row] = ids.size
        permitted_logits, k = self.mask_permitted(exact, ids, class_filter, row), result.ids.shape[1]
        result.ids[row], result.logits[row] = take_best(permitted_logits, ids, k)
        return self.normalize(estimate, spread, ids, exact)

    def normalize(self, estimate: FloatArray, spread: float, ids: IdArray, exact: FloatArray) -> tuple[float, float]:
        """Log-normaliser and by how much it may be off. Overwrites `estimate` [V].

        With p_v = exp(estimate_v) of the classes not rescored and b_v = scale_v spread, sum p_v exp(b_v) is at most
        sum p_v (1 + b_v + f b_v^2), f = (exp b - 1 - b) / b^2 at the largest b, which grows with b; and
        sum p_v exp(-b_v) is at least sum p_v exp(-mean b), mean by p, since exp is convex.
        """
        peak = exact.max()
        inside = float(np.exp(exact - peak).sum())
        estimate -= peak
        estimate[ids] = -INFINITY
        np.exp(estimate, out=estimate)
        rest, first, second = (self.powers @ estimate).tolist()
        first, second = first * spread, second * spread**2
        most = inside + rest + first + bound_growth(spread * self.largest_scale) * second
        least = inside + (rest * math.exp(-first / rest) if rest else 0.0)
        if not most < math.inf:
            return UNDECIDED
        total = inside + rest
        error = max(math.log(most / total), math.log(total / least))
        return float(peak) + math.log(total), error + self.floor + self.summed

    def rescore(
        self, context: FloatArray, upper: FloatArray, class_filter: ClassFilter, row: int, k: int
    ) -> tuple[IdArray, FloatArray] | None:
        """Every class that could be among the k best permitted ones, and some more: ascending ids, exact logits.

        upper: [V]. None where there are too many, or where exact rows have no numbers for them.
        """
        allowed = class_filter.restrict(upper, row) if class_filter.restricts else upper
        ids = find_largest(allowed, self.count_first(k))
        most_left = allowed[ids].min() if ids.size < self.classes else -INFINITY  # no other upper bound is larger
        if class_filter.restricts:  # the best of all are for the normaliser, which knows no lists
            ids = np.union1d(ids, find_largest(upper, FIRST_RESCORED_CLASSES))
        exact = self.rows.score_row(context, ids)
        if not exact.max() < INFINITY:
            return None
        bar = self.find_bar(context, ids, self.mask_permitted(exact, ids, class_filter, row), k)
        if most_left < bar:
            return ids, exact
        reaching = (allowed >= bar).nonzero()[0]
        if reaching.size > max(FIRST_RESCORED_CLASSES, self.classes // MAX_RESCORED_DIVISOR):
            return None
        ids = np.union1d(ids, reaching)
        return ids, self.rows.score_row(context, ids)

    @staticmethod
    def mask_permitted(exact: FloatArray, ids: IdArray, class_filter: ClassFilter, row: int) -> FloatArray:
        """The logits `exact` [m] of the ascending `ids` [m], -inf where illegal."""
        return np.where(class_filter.mask(ids, row), exact, -INFINITY) if class_filter.restricts else exact

    def find_bar(self, context: FloatArray, ids: IdArray, exact: FloatArray, k: int) -> np.float32:
        """What k permitted classes reach for certain, by the logits `exact` [m] of `ids` [m]; else the least number."""
        size = math.sqrt(np.vdot(context, context)) + 1
        if exact.size < k or not size < MAX_CONTEXT_NORM:
            return LOWEST_FLOAT32
        slack = self.rounding[ids]
        slack *= np.float32(size)
        slack += self.floor
        return max(LOWEST_FLOAT32, find_nth_largest(exact - slack, k))

    def measure_error(self, context: FloatArray, k: int) -> tuple[float, int]:
        """By how many nats the log-normaliser of `context` [d] may be off, and how many classes are rescored for it.

        NaN, and a meaningless number, where the bounds do not decide the k best classes. For measuring the bounds.
        """
        result = empty_result(1, k)
        estimates, spreads = self.bounds(context=context[None])
        _, error = self.search_row(context, estimates[0], float(spreads[0, 0]), ClassFilter(), 0, result)
        return error, int(result.scored[0])

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [V], computed in float32 for `context` [d], all lie within their bounds."""
        estimates, spreads = self.bounds(context=context[None])
        real = logits > -INFINITY
        size = np.float32(math.sqrt(np.vdot(context, context)) + 1)
        most = (self.scale * spreads[0] + self.rounding * size + np.float32(self.floor))[real]
        return bool((np.abs(estimates[0][real] - logits[real]) <= most).all())

    def search_row_by_dense(
        self, contexts: FloatArray, class_filter: ClassFilter, row: int, result: PlanResult
    ) -> None:
        """One row by the dense head."""
        assert self.fallback is not None
        k = result.ids.shape[1]
        result.put([row], self.fallback.topk(contexts[row : row + 1], k, class_filter.slice_rows(row, row + 1)))

    def max_rows(self) -> int:
        return chunk_rows(self.classes, ESTIMATE_BYTES)


def bound_growth(most: float) -> float:
    """(exp b - 1 - b) / b^2 at the largest b, under `USELESS_SPREAD`; about a half near 0."""
    return (math.expm1(most) - most) / most**2 if most > SMALL_SPREAD else 1.0
