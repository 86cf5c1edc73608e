"""Plan `grouped`: previews of the best blocks of the best groups, then two rescorings; compiled where numba is."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import INDEX, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.errors import BundleError
from shortlist.plans.common.base import MOST_ROWS, Plan, by_chunks, chunk_rows, log_sum_exp, take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import Indices, largest, nth_largest
from shortlist.runtime.session import Graph

if TYPE_CHECKING:
    from shortlist.kernels.grouped.runner import CompiledSearch

DENSE_SHARE = 4
DIGITS = 2  # of int8 that a context has where it meets int8 rows; older bundles were calibrated with one
OPENED = 2  # times as many classes are opened as are previewed, or more
WIDEN, WIDEN_FULL_VIEW = 12, 1.3  # a request for k classes has at least 12 k candidates and 1.3 k exact scores


class GroupedPlan(Plan):
    """Over fused.onnx and rescore.onnx; the exporter's `grouped_graphs` says what is in them.

    index.safetensors: `order` [m], the ids that positions stand for, `starts` [G + 1] and `block_starts` [B + 1],
    where groups and blocks begin in it, and what `compiled.search` reads. Options of the manifest:

    - `opened`: the groups that score best and hold so many classes, or twice `previewed`, are opened. `previewed`:
      their blocks that score best and hold so many are previewed; loops look at up to a 32nd more of both.
      `candidates`: how many of those are scored by their int8 rows, `full_view`: how many then exactly.
    - `tail_limit`: by how much the log of the sum of exp over the rest is at most above that over the candidates.
    - `digits`: see `DIGITS`.
    - `files`: name -> file of the int8 and the exact rows, of layers large enough for compiled loops.

    The normaliser takes exact and int8 logits for the candidates and a linear guess for the rest: `estimated`.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the graphs; previews are small, so their weights are prepacked."""
        options = bundle.manifest.options
        self.classes = bundle.manifest.classes
        arrays = bundle.tensors(INDEX)
        if options.get("digits") != DIGITS:
            raise BundleError(f"{bundle.folder} is of an older version, which answered otherwise: export it again")
        self.opened, self.previewed = int(options["opened"]), int(options["previewed"])
        self.candidates = int(options["candidates"])
        self.full_view, self.tail_limit = int(options["full_view"]), float(options["tail_limit"])
        self.order: IdArray = arrays["order"]
        self.sizes: IdArray = np.diff(arrays["starts"])
        self.block_sizes: IdArray = np.diff(arrays["block_starts"])
        self.blocks: IdArray = np.diff(np.searchsorted(arrays["block_starts"], arrays["starts"]))  # of each group
        self.fused = Graph(bundle.graph("fused"), device, threads, prepack=True)
        self.rescore = Graph(bundle.graph("rescore"), device, threads)
        self.rows = ExactRows(bundle, device, threads)
        self.compiled = compiled(bundle, arrays, threads) if device == "cpu" and "files" in options else None

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return WIDEN * k > max(self.candidates, self.classes // DENSE_SHARE)

    def exact_scores(self, k: int) -> int:
        """How many candidates are scored exactly."""
        return max(self.full_view, ceil(WIDEN_FULL_VIEW * k))

    @property
    def opens(self) -> int:
        """How many classes the groups hold that are opened, at least."""
        return max(self.opened, OPENED * self.previewed)

    def widened(self, k: int) -> bool:
        """Whether k asks for more candidates than the normaliser's guess of the rest was fitted for."""
        return WIDEN * k > self.candidates

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the number of candidates."""
        wide = legal.restricts or self.widened(k)
        if self.compiled is not None and not wide:
            return self.compiled(contexts, k, self)
        some = chunk_rows(self.order.size)
        return by_chunks(lambda rows, own: self.by_graphs(rows, k, own, wide), contexts, legal, some)

    def by_graphs(self, contexts: FloatArray, k: int, legal: ClassFilter, wide: bool) -> PlanResult:
        """The same of so few rows that their previews stay in the cache. wide: as `answer_widely` does."""
        scores, block_scores, tail, previews = self.fused(context=contexts)
        result = self.answer(contexts, k, tail, map(self.choose, scores, block_scores, previews))
        if wide:
            self.answer_widely(contexts, previews, legal, result)
        return result

    def answer(self, contexts: FloatArray, k: int, tail: FloatArray, candidates: Iterable[Indices]) -> PlanResult:
        """Answers from each row's own candidates, by the graphs."""
        result = empty_result(len(contexts), k)
        for row, positions in enumerate(candidates):
            count = np.array([min(self.exact_scores(k), positions.size)])
            ids, logits, inside = self.rescore(context=contexts[row : row + 1], positions=positions, full_view=count)
            result.log_normalizer[row] = np.logaddexp(inside[0], min(tail[row], inside[0] + self.tail_limit))
            result.scored[row] = positions.size
            if ids.size >= k:
                best = np.lexsort((ids, -logits))[:k]
                result.ids[row], result.logits[row] = ids[best], logits[best]
        return result

    def choose(self, scores: FloatArray, block_scores: FloatArray, preview: FloatArray) -> Indices:
        """Ascending positions of one row's candidates, by scores of groups [G] and blocks [B], and previews [m]."""
        opened = np.repeat(best_holding(scores, self.sizes, self.opens), self.blocks).nonzero()[0]
        kept = best_holding(block_scores[opened], self.block_sizes[opened], self.previewed)
        looked_at = np.zeros(self.block_sizes.size, bool)
        looked_at[opened[kept]] = True
        positions = np.repeat(looked_at, self.block_sizes).nonzero()[0]
        seen = preview[positions]
        chosen: Indices = positions[seen >= nth_largest(seen, min(self.candidates, seen.size))]
        return chosen

    def answer_widely(self, contexts: FloatArray, previews: FloatArray, legal: ClassFilter, result: PlanResult) -> None:
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
        """See Plan.max_rows; loops keep nothing of a row, and share many rows better among threads."""
        return MOST_ROWS


def best_holding(scores: FloatArray, sizes: IdArray, wanted: int) -> npt.NDArray[np.bool_]:
    """[n] -> [n]: which score best, until together they hold `wanted` classes, or all there are."""
    ranked = np.argsort(-scores, kind="stable")
    reached = sizes[ranked].cumsum() >= min(wanted, sizes.sum())
    best: npt.NDArray[np.bool_] = scores >= scores[ranked[reached.argmax()]]
    return best


def compiled(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> CompiledSearch | None:
    """The search by compiled loops; None without numba for this numpy, or the instruction that makes them fast."""
    try:
        from shortlist.kernels.grouped.runner import VNNI, CompiledSearch
    except ImportError:
        return None
    return CompiledSearch(bundle, arrays, threads) if VNNI else None
