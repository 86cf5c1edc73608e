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

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import CERTIFICATE, Bundle
from shortlist.core.filters import Legal
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.exact_rows import COMPILED_THREADS, ExactRows
from shortlist.plans.common.selection import largest, nth_largest
from shortlist.runtime.session import Graph

FIRST = 32  # classes rescored at once: as a rule they hold all that the bounds leave, and much of the normaliser
WIDEN = 2  # times k are rescored where k is large
MOST_SHARE = 16  # of V / 16 classes and more dense is as fast as rescoring
UNIT = 2.0**-24
TANH_ERROR = 1e-6
TINY = 1e-30  # what underflows
CHUNK_BYTES = 16 << 20  # estimates of one chunk of rows
INFINITY = np.float32(np.inf)
LEAST: np.float32 = np.finfo(np.float32).min
UNDECIDED = math.nan, math.nan
SPARE = 1 + 1e-5  # for the roundings of what bounds roundings
SMALL, LARGE = 1e-3, 50.0  # nats: a bound that needs no growth, and one that says nothing
LARGEST = 1e30  # norm of a context that float32 can surely work with
EXPONENTIAL = 1e-5  # nats: what a difference to the largest logit and its exponential lose in float32

Bounds = Callable[..., Sequence[FloatArray]]  # context [B, d] -> estimates [B, V], spreads [B, 1]


class CertifiedPlan(Plan):
    """bounds.onnx: `context` [B, d] -> `estimate` [B, V], `spread` [B, 1]; rows.onnx; dense for undecided rows.

    |logit_v - estimate_v| <= scale_v spread + floor. The normaliser is `bounded`: exact logits for the rescored
    classes, estimates for the rest. It is off by `tolerance` nats at most, else dense answers. On CPU alone.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open what gives bounds, and rows.onnx."""
        manifest = bundle.manifest
        self.classes = manifest.classes
        certificate = manifest.certificate  # none while the export still measures
        self.tolerance = math.inf if certificate is None else certificate.logprob_bound
        self.crossover = None if certificate is None else certificate.dense_crossover
        arrays = bundle.tensors(CERTIFICATE)
        self.bounds = bounds_of(bundle, arrays, device, threads)
        self.rows = ExactRows(bundle, device, threads)
        self.scale: FloatArray = arrays["scale"]
        self.largest_scale = float(self.scale.max())
        self.powers = np.stack([np.ones_like(self.scale), self.scale, self.scale**2])
        operations = manifest.dim + 4
        gamma = operations * UNIT / (1 - operations * UNIT)
        self.rounding: FloatArray = arrays["norms"] * np.float32(gamma * SPARE)
        self.floor = SPARE * (float(arrays["floor"][0]) + TINY + 4 * TANH_ERROR * (manifest.soft_cap or 0.0))
        self.summed = self.classes * UNIT + EXPONENTIAL  # sums of V positive terms, in whatever order

    def first(self, k: int) -> int:
        """How many classes are rescored before anything is known."""
        return min(self.classes, max(FIRST, WIDEN * k))

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return self.first(k) > max(FIRST, self.classes // MOST_SHARE)

    def topk(self, contexts: FloatArray, k: int, legal: Legal) -> PlanResult:
        """See Plan.topk; `scored` is the number of rescored classes, V where dense answered."""
        result = empty_result(len(contexts), k)
        if not len(contexts):  # ONNX Runtime multiplies no matrices without rows
            return result
        estimates, spreads = self.bounds(context=contexts)
        for row, estimate in enumerate(estimates):
            middle, error = self.answer(contexts[row], estimate, float(spreads[row, 0]), legal, row, result)
            if error <= self.tolerance:
                result.log_normalizer[row] = middle
            else:
                self.answer_dense(contexts, legal, row, result)
        return result

    def answer(
        self, context: FloatArray, estimate: FloatArray, spread: float, legal: Legal, row: int, result: PlanResult
    ) -> tuple[float, float]:
        """One row into `result`; returns its log-normaliser and by how much that may be off.

        estimate: [V], overwritten. NaN where the bounds say nothing, leave too many classes, or overflow.
        """
        if not spread < LARGE / self.largest_scale:
            return UNDECIDED
        upper = self.scale * np.float32(spread)
        upper += estimate
        found = self.rescore(context, upper, legal, row, result.ids.shape[1])
        if found is None:
            return UNDECIDED
        ids, exact = found
        result.scored[row] = ids.size
        result.ids[row], result.logits[row] = take_best(self.legal(exact, ids, legal, row), ids, result.ids.shape[1])
        return self.normalize(estimate, spread, ids, exact)

    def normalize(self, estimate: FloatArray, spread: float, ids: IdArray, exact: FloatArray) -> tuple[float, float]:
        """Log-normaliser and by how much it may be off. Overwrites `estimate` [V].

        With p_v = exp(estimate_v) of the classes not rescored and b_v = scale_v spread, sum p_v exp(b_v) is at most
        sum p_v (1 + b_v + f b_v^2), f = (exp b - 1 - b) / b^2 at the largest b, which grows with b; and
        sum p_v exp(-b_v) is at least sum p_v exp(-mean b), mean by p, since exp is convex.
        """
        peak = exact.max()
        known = float(np.exp(exact - peak).sum())
        estimate -= peak
        estimate[ids] = -INFINITY
        np.exp(estimate, out=estimate)
        rest, first, second = (self.powers @ estimate).tolist()
        first, second = first * spread, second * spread**2
        most = known + rest + first + growth(spread * self.largest_scale) * second
        least = known + (rest * math.exp(-first / rest) if rest else 0.0)
        if not most < math.inf:
            return UNDECIDED
        total = known + rest
        error = max(math.log(most / total), math.log(total / least))
        return float(peak) + math.log(total), error + self.floor + self.summed

    def rescore(
        self, context: FloatArray, upper: FloatArray, legal: Legal, row: int, k: int
    ) -> tuple[IdArray, FloatArray] | None:
        """Every class that could be among the k best legal ones, and some more: ascending ids, exact logits.

        upper: [V]. None where there are too many, or where exact rows have no numbers for them.
        """
        allowed = legal.restrict(upper, row) if legal.restricts else upper
        ids = largest(allowed, self.first(k))
        most_left = allowed[ids].min() if ids.size < self.classes else -INFINITY  # no other upper bound is larger
        if legal.restricts:  # the best of all are for the normaliser, which knows no lists
            ids = np.union1d(ids, largest(upper, FIRST))
        exact = self.rows.of(context, ids)
        if not exact.max() < INFINITY:
            return None
        bar = self.bar(context, ids, self.legal(exact, ids, legal, row), k)
        if most_left < bar:
            return ids, exact
        reaching = (allowed >= bar).nonzero()[0]
        if reaching.size > max(FIRST, self.classes // MOST_SHARE):
            return None
        ids = np.union1d(ids, reaching)
        return ids, self.rows.of(context, ids)

    @staticmethod
    def legal(exact: FloatArray, ids: IdArray, legal: Legal, row: int) -> FloatArray:
        """The logits `exact` [m] of the ascending `ids` [m], -inf where illegal."""
        return np.where(legal.mask(ids, row), exact, -INFINITY) if legal.restricts else exact

    def bar(self, context: FloatArray, ids: IdArray, exact: FloatArray, k: int) -> np.float32:
        """What k legal classes reach for certain, by the logits `exact` [m] of `ids` [m]; else the least number."""
        size = math.sqrt(np.vdot(context, context)) + 1
        if exact.size < k or not size < LARGEST:
            return LEAST
        slack = self.rounding[ids]
        slack *= np.float32(size)
        slack += self.floor
        return max(LEAST, nth_largest(exact - slack, k))

    def measure_error(self, context: FloatArray, k: int) -> tuple[float, int]:
        """By how many nats the log-normaliser of `context` [d] may be off, and how many classes are rescored for it.

        NaN, and a meaningless number, where the bounds do not decide the k best classes. For measuring the bounds.
        """
        result = empty_result(1, k)
        estimates, spreads = self.bounds(context=context[None])
        _, error = self.answer(context, estimates[0], float(spreads[0, 0]), Legal(), 0, result)
        return error, int(result.scored[0])

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [V], computed in float32 for `context` [d], all lie within their bounds."""
        estimates, spreads = self.bounds(context=context[None])
        known = logits > -INFINITY
        size = np.float32(math.sqrt(np.vdot(context, context)) + 1)
        most = (self.scale * spreads[0] + self.rounding * size + np.float32(self.floor))[known]
        return bool((np.abs(estimates[0][known] - logits[known]) <= most).all())

    def answer_dense(self, contexts: FloatArray, legal: Legal, row: int, result: PlanResult) -> None:
        """One row by the dense head."""
        assert self.fallback is not None
        found = self.fallback.topk(contexts[row : row + 1], result.ids.shape[1], legal.rows(row, row + 1))
        for name in ("ids", "logits", "log_normalizer", "scored"):
            getattr(result, name)[row] = getattr(found, name)[0]

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer; within `tolerance`."""
        return self.topk(contexts, 1, Legal()).log_normalizer

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return chunk_rows(self.classes, CHUNK_BYTES)


def bounds_of(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], device: str, threads: int) -> Bounds:
    """By compiled loops on few threads, where numba, its instruction and the tables are there; else by bounds.onnx."""
    if threads <= COMPILED_THREADS and "factors" in arrays:
        with contextlib.suppress(ImportError):
            from shortlist.kernels.bounds import VNNI, CompiledBounds

            if VNNI:
                return CompiledBounds(bundle, arrays, threads)
    return Graph(bundle.graph("bounds"), device, threads, prepack=True)


def growth(most: float) -> float:
    """(exp b - 1 - b) / b^2 at the largest b, under `LARGE`; about a half near 0."""
    return (math.expm1(most) - most) / most**2 if most > SMALL else 1.0
