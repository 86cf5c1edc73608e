"""Plan `cascade`: previews of common classes, of rare ones where a screen asks for them, then two rescorings."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import CascadeSettings
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import DENSE_DIVISOR, Plan, chunk_rows, find_short_rows, take_best, write_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import Indices, find_largest, find_nth_largest, find_reaching
from shortlist.runtime.session import Graph

REACH_RANK = 5  # the preview that the screen's reach is held against
CASCADE_CANDIDATES_PER_K = 16  # a request for k classes has at least 16 k candidates
CASCADE_EXACT_PER_K = 2  # and 2 k exact scores
SCREEN_OUTPUTS = ["integers", "row_scale", "reach", "tail", "previews"]


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
        self.rescore = Graph(bundle.graph("rescore"), device, threads)
        self.rows = ExactRows(bundle, device, threads)

    def prefers_dense(self, k: int) -> bool:
        return CASCADE_CANDIDATES_PER_K * k > max(self.settings.candidates, self.classes // DENSE_DIVISOR)

    def is_wide(self, k: int) -> bool:
        """Whether k asks for more candidates, or more exact scores, than rows have."""
        settings = self.settings
        return CASCADE_CANDIDATES_PER_K * k > settings.candidates or CASCADE_EXACT_PER_K * k > settings.full_view

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of candidates."""
        integers, row_scale, reach, tail, previews = self.fused.run_outputs(SCREEN_OUTPUTS, {"context": contexts})
        candidates = self.choose_candidates(integers, row_scale, reach, previews)
        result, tail_limit = empty_result(len(contexts), k), self.settings.tail_limit
        for row, positions in enumerate(candidates):
            ids, logits, inside = self.score(contexts[row : row + 1], positions, self.settings.full_view)
            result.log_normalizer[row] = np.logaddexp(inside, min(tail[row], inside + tail_limit))
            result.scored[row] = positions.size
            write_best(result, row, ids, logits)
        rows = range(len(contexts)) if class_filter.restricts or self.is_wide(k) else find_short_rows(result)
        if len(rows):
            everything = self.preview_all(integers, row_scale, previews)
            self.rescore_widely(contexts, everything, class_filter, result, rows)
        return result

    def choose_candidates(
        self, integers: npt.NDArray[np.uint8], row_scale: FloatArray, reach: FloatArray, previews: FloatArray
    ) -> list[Indices]:
        """Ascending positions of each row's candidates."""
        settings, candidates, bars, unsure = self.settings, [], [], []
        for row, preview in enumerate(previews):
            positions, bar = find_reaching(preview, settings.candidates, settings.stride)
            enough = positions.size >= settings.full_view
            candidates.append(positions if enough else find_largest(preview, settings.full_view))
            bars.append(bar)
            if self.rare is None:
                continue
            if pick_ranked_preview(preview[candidates[row]]) * row_scale[row, 0] - reach[row] < settings.margin:
                unsure.append(row)
        if unsure:
            assert self.rare is not None
            rare = self.rare(integers=integers[unsure], row_scale=row_scale[unsure])[0]
            for row, preview in zip(unsure, rare, strict=True):
                extra = (preview >= bars[row]).nonzero()[0]
                candidates[row] = np.concatenate([candidates[row], extra + settings.common])
        return candidates

    def score(self, context: FloatArray, positions: Indices, full_view: int) -> tuple[IdArray, FloatArray, FloatArray]:
        """Ids and exact logits of the best `full_view` candidates by int8 rows, and log of the sum of all exp."""
        count = np.array([min(full_view, positions.size)])
        ids, logits, inside = self.rescore(context=context, positions=positions, full_view=count)
        self.rescore.check_ids(ids, self.classes)
        return ids, logits, inside[0]

    def preview_all(self, integers: npt.NDArray[np.uint8], row_scale: FloatArray, previews: FloatArray) -> FloatArray:
        """Previews [B, m] of common and rare classes, in units of a row's own."""
        if self.rare is None:
            return previews
        return np.concatenate([previews, self.rare(integers=integers, row_scale=row_scale)[0]], axis=1)

    def rescore_widely(
        self,
        contexts: FloatArray,
        previews: FloatArray,
        class_filter: ClassFilter,
        result: PlanResult,
        rows: Iterable[int],
    ) -> None:
        """Replace ids and logits of some rows by those of more candidates; the normaliser stays."""
        k = result.ids.shape[1]
        count = max(self.settings.candidates, CASCADE_CANDIDATES_PER_K * k)
        for row in rows:
            preview, mask = previews[row], class_filter.mask(self.order, row)
            positions = find_largest(np.where(mask, preview, np.float32(-np.inf)), min(preview.size, count))
            ids = np.sort(self.order[positions[mask[positions]]])
            logits = self.rows.score_row(contexts[row], ids)
            result.scored[row] = max(result.scored[row], ids.size)
            result.ids[row], result.logits[row] = take_best(logits, ids, k)

    def width(self, k: int) -> int:
        """`k` where it needs more candidates than the settings give every row, else 0."""
        return k if self.is_wide(k) else 0

    def max_rows(self) -> int:
        return chunk_rows(self.settings.common)


def pick_ranked_preview(previews: FloatArray) -> np.float32:
    """The `REACH_RANK`-th best of a row's candidates [n], or the last where there are fewer."""
    return find_nth_largest(previews, min(REACH_RANK, previews.size))
