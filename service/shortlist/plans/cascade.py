"""Plan `cascade`: previews of common classes, of rare ones where a screen asks for them, then two rescorings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import CascadeSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import DENSE_DIVISOR, Plan, chunk_rows, count_scored, find_short_rows, write_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.normalizer import cover_also, limit_rest
from shortlist.plans.common.selection import Indices, find_largest, find_nth_largest, find_reaching
from shortlist.plans.common.wide_search import WideSearch
from shortlist.runtime.session import Graph

REACH_RANK = 5  # the preview that the screen's reach is held against
CASCADE_CANDIDATES_PER_K = 16  # a request for k classes has at least 16 k candidates
CASCADE_EXACT_PER_K = 2  # and 2 k exact scores
# The fields of Screening
SCREEN_OUTPUTS = ["integers", "row_scale", "reach", "tail", "previews"]


class Screening(NamedTuple):
    """What fused.onnx gives for B rows.

    integers: [B, w], the projected contexts in 8 bits, and row_scale: [B, 1], their units. reach: [B], what a rare
    class may reach. tail: [B], log of the sum of exp of classes that are no candidates. previews: [B, common].
    """

    integers: npt.NDArray[np.uint8]
    row_scale: FloatArray
    reach: FloatArray
    tail: FloatArray
    previews: FloatArray

    def take_rows(self, rows: list[int]) -> Screening:
        """The outputs of some rows alone."""
        return Screening(
            self.integers[rows], self.row_scale[rows], self.reach[rows], self.tail[rows], self.previews[rows]
        )


class CascadePlan(Plan):
    """Searches by fused.onnx, rare.onnx and rescore.onnx; the exporter's `graphs.cascade` describes these.

    index.safetensors: `order` [m], the ids that positions stand for. Settings: `CascadeSettings`.

    The normaliser takes exact and int8 logits for the candidates and the screen's guess for the rest: `estimated`.
    """

    settings: CascadeSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open the graphs; previews are small, so their weights are prepacked."""
        self.settings, self.fallback = bundle.settings(CascadeSettings), fallback
        self.classes = bundle.manifest.classes
        self.order: IdArray = bundle.tensors(INDEX_FILE)["order"]
        self.fused = Graph(bundle.graph("fused"), device, threads, prepack=True)
        self.rare = Graph(bundle.graph("rare"), device, threads, prepack=True) if bundle.has_graph("rare") else None
        self.rescore_graph = Graph(bundle.graph("rescore"), device, threads)
        self.wide = WideSearch(ExactRows(bundle, device, threads), self.order)

    def prefers_dense(self, k: int) -> bool:
        return CASCADE_CANDIDATES_PER_K * k > max(self.settings.candidates, self.classes // DENSE_DIVISOR)

    def is_wide(self, k: int) -> bool:
        """Whether k asks for more candidates, or more exact scores, than rows have."""
        settings = self.settings
        return CASCADE_CANDIDATES_PER_K * k > settings.candidates or CASCADE_EXACT_PER_K * k > settings.full_view

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of candidates, under V unless all of them are scored exactly."""
        screen = self.screen(contexts)
        if class_filter.restricts or self.is_wide(k):
            return self.search_widely(contexts, screen, k, class_filter)
        result = self.rescore(contexts, screen, k)
        short = find_short_rows(result)
        if short:
            result.put(short, self.search_widely(contexts[short], screen.take_rows(short), k, UNRESTRICTED))
        return result

    def screen(self, contexts: FloatArray) -> Screening:
        """Project `contexts` [B, d] and preview the common classes."""
        return Screening(*self.fused.run_outputs(SCREEN_OUTPUTS, {"context": contexts}))

    def search_widely(self, contexts: FloatArray, screen: Screening, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best among many of all previews."""
        first = self.rescore(contexts, screen, self.exact_classes)
        count = max(self.settings.candidates, CASCADE_CANDIDATES_PER_K * k)
        return self.wide.search(contexts, self.preview_all(screen), first, k, count, class_filter)

    @property
    def exact_classes(self) -> int:
        """How many classes a row without lists has exact scores of."""
        return min(self.settings.full_view, self.order.size)

    def rescore(self, contexts: FloatArray, screen: Screening, k: int) -> PlanResult:
        """The k best of each row's candidates, by rescore.onnx; ids -1 where fewer than k are scored exactly."""
        result, tail_limit = empty_result(len(contexts), k), self.settings.tail_limit
        for row, positions in enumerate(self.choose_candidates(screen)):
            count = np.array([min(self.settings.full_view, positions.size)])
            inputs = {"context": contexts[row : row + 1], "positions": positions, "full_view": count}
            ids, logits, inside = self.rescore_graph(**inputs)
            self.rescore_graph.check_ids(ids, self.classes)
            result.log_normalizer[row] = inside[0]
            if positions.size < self.order.size:
                most = limit_rest(logits, inside[0], positions.size, self.order.size)
                rest = min(screen.tail[row], inside[0] + tail_limit, most)
                result.log_normalizer[row] = np.logaddexp(inside[0], rest)
            result.scored[row] = count_scored(positions.size, self.settings.full_view, self.classes)
            write_best(result, row, ids, logits)
        return result

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        return cover_also(self.rescore(contexts, self.screen(contexts), self.exact_classes), ids, logits)

    def choose_candidates(self, screen: Screening) -> list[Indices]:
        """Ascending positions of each row's candidates."""
        settings, candidates, bars, unsure = self.settings, [], [], []
        for row, preview in enumerate(screen.previews):
            positions, bar = find_reaching(preview, settings.candidates, settings.stride)
            enough = positions.size >= settings.full_view
            candidates.append(positions if enough else find_largest(preview, settings.full_view))
            bars.append(bar)
            if self.rare is None:
                continue
            best = pick_ranked_preview(preview[candidates[row]]) * screen.row_scale[row, 0]
            if best - screen.reach[row] < settings.margin:
                unsure.append(row)
        if unsure:
            assert self.rare is not None
            rare = self.rare(integers=screen.integers[unsure], row_scale=screen.row_scale[unsure])[0]
            for row, preview in zip(unsure, rare, strict=True):
                extra = (preview >= bars[row]).nonzero()[0]
                candidates[row] = np.concatenate([candidates[row], extra + settings.common])
        return candidates

    def preview_all(self, screen: Screening) -> FloatArray:
        """Previews [B, m] of common and rare classes, in units of a row's own."""
        if self.rare is None:
            return screen.previews
        rare = self.rare(integers=screen.integers, row_scale=screen.row_scale)[0]
        return np.concatenate([screen.previews, rare], axis=1)

    def width(self, k: int) -> int:
        """`k` where it needs more candidates than the settings give every row, else 0."""
        return k if self.is_wide(k) else 0

    def max_rows(self) -> int:
        return chunk_rows(self.settings.common)


def pick_ranked_preview(previews: FloatArray) -> np.float32:
    """The `REACH_RANK`-th best of a row's candidates [n], or the last where there are fewer."""
    return find_nth_largest(previews, min(REACH_RANK, previews.size))
