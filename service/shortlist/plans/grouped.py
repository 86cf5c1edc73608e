"""Plan `grouped`: previews of the best blocks of the best groups, then two rescorings; compiled where numba is."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import (
    DENSE_DIVISOR,
    MAX_CALL_ROWS,
    Plan,
    chunk_rows,
    find_short_rows,
    log_sum_exp,
    run_by_chunks,
    take_best,
    write_best,
)
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.open_kernel import open_kernel
from shortlist.plans.common.selection import Indices, find_largest, find_nth_largest
from shortlist.runtime.session import Graph

if TYPE_CHECKING:
    from shortlist.kernels.grouped.runner import CompiledSearch

GROUPED_CANDIDATES_PER_K = 12  # a request for k classes has at least 12 k candidates
GROUPED_EXACT_PER_K = 1.3  # and 1.3 k exact scores


def open_search(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> CompiledSearch | None:
    from shortlist.kernels.grouped.runner import CompiledSearch

    return CompiledSearch.open(bundle, arrays, threads)


class GroupedPlan(Plan):
    """Searches by fused.onnx and rescore.onnx; the exporter's `graphs.grouped` describes them.

    index.safetensors: `order` [m], the ids that positions stand for, `starts` [G + 1] and `block_starts` [B + 1],
    where groups and blocks begin in it, and what `kernels.grouped` reads. Settings: `GroupedSettings`; loops look at
    up to a 32nd more classes than these open and preview.

    The normaliser takes exact and int8 logits for the candidates and a linear guess for the rest: `estimated`.
    """

    settings: GroupedSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open the graphs; previews are small, so their weights are prepacked."""
        self.settings, self.fallback = bundle.settings(GroupedSettings), fallback
        self.classes = bundle.manifest.classes
        arrays = bundle.tensors(INDEX_FILE)
        self.order: IdArray = arrays["order"]
        self.sizes: IdArray = np.diff(arrays["starts"])
        self.block_sizes: IdArray = np.diff(arrays["block_starts"])
        self.blocks: IdArray = np.diff(np.searchsorted(arrays["block_starts"], arrays["starts"]))  # of each group
        self.fused = Graph(bundle.graph("fused"), device, threads, prepack=True)
        self.rescore_graph = Graph(bundle.graph("rescore"), device, threads)
        self.rows = ExactRows(bundle, device, threads)
        self.compiled: CompiledSearch | None = (
            open_kernel(lambda: open_search(bundle, arrays, threads)) if device == "cpu" else None
        )

    def prefers_dense(self, k: int) -> bool:
        return GROUPED_CANDIDATES_PER_K * k > max(self.settings.candidates, self.classes // DENSE_DIVISOR)

    def count_exact(self, k: int) -> int:
        """How many candidates are scored exactly."""
        return max(self.settings.full_view, ceil(GROUPED_EXACT_PER_K * k))

    def is_wide(self, k: int) -> bool:
        """Whether k asks for more candidates than the normaliser's guess of the rest was fitted for, or there are."""
        return GROUPED_CANDIDATES_PER_K * k > self.settings.candidates or k > self.order.size

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of candidates."""
        wide = class_filter.restricts or self.is_wide(k)
        if self.compiled is not None and not wide:
            return self.compiled(contexts, k, self.settings, self.count_exact(k))
        some = chunk_rows(self.order.size)
        return run_by_chunks(
            lambda rows, part: self.search_by_graphs(rows, k, part, wide), contexts, class_filter, some
        )

    def search_by_graphs(self, contexts: FloatArray, k: int, class_filter: ClassFilter, wide: bool) -> PlanResult:
        """The same of so few rows that their previews stay in the cache. wide: as `rescore_widely` does."""
        scores, block_scores, tail, previews = self.fused(context=contexts)
        result = self.rescore(contexts, k, tail, map(self.choose_candidates, scores, block_scores, previews))
        rows = range(len(contexts)) if wide else find_short_rows(result)
        self.rescore_widely(contexts, previews, class_filter, result, rows)
        return result

    def rescore(self, contexts: FloatArray, k: int, tail: FloatArray, candidates: Iterable[Indices]) -> PlanResult:
        """The k best of each row's candidates, by rescore.onnx; ids -1 where fewer than k are scored exactly."""
        result, tail_limit = empty_result(len(contexts), k), self.settings.tail_limit
        for row, positions in enumerate(candidates):
            count = np.array([min(self.count_exact(k), positions.size)])
            inputs = {"context": contexts[row : row + 1], "positions": positions, "full_view": count}
            ids, logits, inside = self.rescore_graph(**inputs)
            self.rescore_graph.check_ids(ids, self.classes)
            result.log_normalizer[row] = np.logaddexp(inside[0], min(tail[row], inside[0] + tail_limit))
            result.scored[row] = positions.size
            write_best(result, row, ids, logits)
        return result

    def choose_candidates(self, scores: FloatArray, block_scores: FloatArray, preview: FloatArray) -> Indices:
        """Ascending positions of one row's candidates, by scores of groups [G] and blocks [B], and previews [m]."""
        settings = self.settings
        opened = np.repeat(mark_best(scores, self.sizes, settings.classes_opened), self.blocks).nonzero()[0]
        best = opened[mark_best(block_scores[opened], self.block_sizes[opened], settings.previewed)]
        is_previewed = np.zeros(self.block_sizes.size, bool)
        is_previewed[best] = True
        positions = np.repeat(is_previewed, self.block_sizes).nonzero()[0]
        scores = preview[positions]
        candidates: Indices = positions[scores >= find_nth_largest(scores, min(settings.candidates, scores.size))]
        return candidates

    def rescore_widely(
        self,
        contexts: FloatArray,
        previews: FloatArray,
        class_filter: ClassFilter,
        result: PlanResult,
        rows: Iterable[int],
    ) -> None:
        """Replace ids and logits of some rows by those of more candidates of all groups.

        The normaliser is raised to cover them.
        """
        k = result.ids.shape[1]
        count = max(self.settings.candidates, GROUPED_CANDIDATES_PER_K * k)
        for row in rows:
            preview, mask = previews[row], class_filter.mask(self.order, row)
            masked = np.where(mask, preview, np.float32(-np.inf))
            positions = find_largest(masked, min(preview.size, count))
            ids = np.sort(self.order[positions[mask[positions]]])
            result.scored[row] = max(result.scored[row], ids.size)
            logits = self.rows.score_row(contexts[row], ids)
            result.ids[row], result.logits[row] = take_best(logits, ids, k)
            best = log_sum_exp(result.logits[row].copy())  # of groups that the normaliser did not look at
            result.log_normalizer[row] = max(result.log_normalizer[row], best)

    def width(self, k: int) -> int:
        """The number of exact scores; -k where k needs more candidates than the settings give every row."""
        return -k if self.is_wide(k) else self.count_exact(k)

    def max_rows(self) -> int:
        """Many: loops keep nothing of a row, and share many rows better among threads."""
        return MAX_CALL_ROWS


def mark_best(scores: FloatArray, sizes: IdArray, wanted: int) -> npt.NDArray[np.bool_]:
    """[n] -> [n]: which score best, until together they hold `wanted` classes, or all there are. sizes: [n]."""
    order = np.argsort(-scores, kind="stable")
    suffices = sizes[order].cumsum() >= min(wanted, sizes.sum())
    best: npt.NDArray[np.bool_] = scores >= scores[order[suffices.argmax()]]
    return best
