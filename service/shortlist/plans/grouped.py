"""Plan `grouped`: previews of the best groups of classes, then two rescorings; compiled where numba is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..bundle import INDEX, Bundle
from ..exact_rows import ExactRows
from ..legal import UNRESTRICTED, Legal
from ..result import FloatArray, IdArray, PlanResult
from ..runtime import Graph
from ..selection import Indices, largest, nth_largest
from .base import Plan, chunk_rows, empty_result, log_sum_exp, take_best

if TYPE_CHECKING:
    from ..compiled_search import CompiledSearch

DENSE_SHARE = 4
WIDEN, WIDEN_FULL_VIEW = 12, 2  # a request for k classes has at least 12 k candidates and 2 k exact scores


class GroupedPlan(Plan):
    """Over fused.onnx and rescore.onnx; the exporter's `grouped_graphs` says what is in them.

    index.safetensors: `order` [m], the ids that positions stand for, `starts` [G + 1], where groups begin in it, and
    what `compiled_search` reads. Options of the manifest:

    - `previewed`: the groups that score best and hold so many classes are previewed. `candidates`: how many of those
      are scored by their int8 rows, `full_view`: how many then exactly.
    - `tail_limit`: by how much the log of the sum of exp over the rest is at most above that over the candidates.
    - `files`: name -> file of the int8 and the exact rows, of layers large enough for compiled loops.

    The normaliser takes exact and int8 logits for the candidates and a linear guess for the rest: `estimated`.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the graphs; previews are small, so their weights are prepacked."""
        options = bundle.manifest.options
        self.classes = bundle.manifest.classes
        self.previewed, self.candidates = int(options["previewed"]), int(options["candidates"])
        self.full_view, self.tail_limit = int(options["full_view"]), float(options["tail_limit"])
        arrays = bundle.tensors(INDEX)
        self.order: IdArray = arrays["order"]
        self.sizes: IdArray = np.diff(arrays["starts"])
        self.fused = Graph(bundle.graph("fused"), device, threads, prepack=True)
        self.rescore = Graph(bundle.graph("rescore"), device, threads)
        self.rows = ExactRows(bundle, device, threads)
        readable = "files" in options and "projection_scale" in arrays  # older bundles lay the projection otherwise
        self.compiled = compiled(bundle, arrays) if device == "cpu" and readable else None

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return WIDEN * k > max(self.candidates, self.classes // DENSE_SHARE)

    def exact_scores(self, k: int) -> int:
        """How many candidates are scored exactly."""
        return max(self.full_view, WIDEN_FULL_VIEW * k)

    def widened(self, k: int) -> bool:
        """Whether k asks for more candidates than the normaliser's guess of the rest was fitted for."""
        return WIDEN * k > self.candidates

    def topk(self, contexts: FloatArray, k: int, legal: Legal) -> PlanResult:
        """See Plan.topk; `scored` is the number of candidates."""
        wide = legal.restricts or self.widened(k)
        if self.compiled is not None and not wide:
            return self.compiled(contexts, k, self)
        scores, tail, previews = self.fused(context=contexts)
        result = self.answer(contexts, k, scores, tail, previews)
        if wide:
            self.answer_widely(contexts, previews, legal, result)
        return result

    def answer(
        self, contexts: FloatArray, k: int, scores: FloatArray, tail: FloatArray, previews: FloatArray
    ) -> PlanResult:
        """Answers from the plan's own candidates, by the graphs."""
        result = empty_result(len(contexts), k)
        for row, positions in enumerate(map(self.choose, scores, previews)):
            count = np.array([min(self.exact_scores(k), positions.size)])
            ids, logits, inside = self.rescore(context=contexts[row : row + 1], positions=positions, full_view=count)
            result.log_normalizer[row] = np.logaddexp(inside[0], min(tail[row], inside[0] + self.tail_limit))
            result.scored[row] = positions.size
            if ids.size >= k:
                best = np.lexsort((ids, -logits))[:k]
                result.ids[row], result.logits[row] = ids[best], logits[best]
        return result

    def choose(self, scores: FloatArray, preview: FloatArray) -> Indices:
        """Ascending positions of one row's candidates, by the scores [G] of groups and the previews [m]."""
        ranked = np.argsort(-scores, kind="stable")
        reached = self.sizes[ranked].cumsum() >= min(self.previewed, preview.size)
        opened = np.repeat(scores >= scores[ranked[reached.argmax()]], self.sizes).nonzero()[0]
        seen = preview[opened]
        chosen: Indices = opened[seen >= nth_largest(seen, min(self.candidates, seen.size))]
        return chosen

    def answer_widely(self, contexts: FloatArray, previews: FloatArray, legal: Legal, result: PlanResult) -> None:
        """Ids and logits anew, from more candidates of all groups or from legal ones; the normaliser covers them."""
        k = result.ids.shape[1]
        for row, preview in enumerate(previews):
            mask = legal.mask(self.order, row)
            masked = np.where(mask, preview, np.float32(-np.inf))
            positions = largest(masked, min(preview.size, max(self.candidates, WIDEN * k)))
            ids = np.sort(self.order[positions[mask[positions]]])
            result.scored[row] = max(result.scored[row], ids.size)
            logits = self.rows.of(contexts[row], ids)
            result.ids[row], result.logits[row] = take_best(logits, ids, k)
            found = log_sum_exp(result.logits[row].copy())  # in groups that the normaliser did not look at
            result.log_normalizer[row] = max(result.log_normalizer[row], found)

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer."""
        return self.topk(contexts, 1, UNRESTRICTED).log_normalizer

    def width(self, k: int) -> int:
        """See Plan.width: a k that widens has candidates of its own."""
        return -k if self.widened(k) else self.exact_scores(k)

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return chunk_rows(self.order.size)


def compiled(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]]) -> CompiledSearch | None:
    """The search by compiled loops; None without numba for this numpy, or the instruction that makes them fast."""
    try:
        from ..compiled_search import VNNI, CompiledSearch
    except ImportError:
        return None
    return CompiledSearch(bundle, arrays) if VNNI else None
