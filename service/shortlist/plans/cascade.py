"""Plan `cascade`: previews of common classes, of rare ones where a screen asks for them, then two rescorings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import INDEX, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import Indices, largest, nth_largest, reaching
from shortlist.runtime.session import Graph

DENSE_SHARE = 4
RANK = 5  # the preview that the screen's reach is held against
WIDEN, WIDEN_FULL_VIEW = 16, 2  # a request for k classes has at least 16 k candidates and 2 k exact scores
SCREENED = ["integers", "row_scale", "reach", "tail", "previews"]


class CascadePlan(Plan):
    """Over fused.onnx, rare.onnx and rescore.onnx; the exporter's `cascade_graphs` says what is in them.

    index.safetensors: `order` [m], the ids that positions stand for. Options of the manifest:

    - `candidates`: about how many classes of a row are scored by their int8 rows, `full_view`: how many then exactly.
    - `margin`: rows whose `RANK`-th best preview of a common class is less than this over the screen's reach look at
      the rare classes too. `common`: how many classes are not rare.
    - `stride`: every how many-th preview of a common class is looked at for the threshold.
    - `tail_limit`: by how much the log of the sum of exp over the rest is at most above that over the candidates.

    The normaliser takes exact and int8 logits for the candidates and the screen's guess for the rest: `estimated`.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the graphs; previews are small, so their weights are prepacked."""
        options = bundle.manifest.options
        self.classes = bundle.manifest.classes
        self.candidates, self.full_view = int(options["candidates"]), int(options["full_view"])
        self.common, self.stride = int(options["common"]), int(options["stride"])
        self.margin, self.tail_limit = float(options["margin"]), float(options["tail_limit"])
        self.order: IdArray = bundle.tensors(INDEX)["order"]
        self.fused = Graph(bundle.graph("fused"), device, threads, prepack=True)
        self.rare = Graph(bundle.graph("rare"), device, threads, prepack=True) if bundle.has_graph("rare") else None
        self.rescore = Graph(bundle.graph("rescore"), device, threads)
        self.rows = ExactRows(bundle, device, threads)

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return WIDEN * k > max(self.candidates, self.classes // DENSE_SHARE)

    def widened(self, k: int) -> bool:
        """Whether k asks for more candidates, or more exact scores, than rows have."""
        return WIDEN * k > self.candidates or WIDEN_FULL_VIEW * k > self.full_view

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the number of candidates."""
        integers, row_scale, reach, tail, previews = self.fused.run_outputs(SCREENED, {"context": contexts})
        chosen = self.choose(integers, row_scale, reach, previews)
        result = empty_result(len(contexts), k)
        for row, positions in enumerate(chosen):
            ids, logits, inside = self.score(contexts[row : row + 1], positions, self.full_view)
            result.log_normalizer[row] = np.logaddexp(inside, min(tail[row], inside + self.tail_limit))
            result.scored[row] = positions.size
            if ids.size >= k:
                best = np.lexsort((ids, -logits))[:k]
                result.ids[row], result.logits[row] = ids[best], logits[best]
        if legal.restricts or self.widened(k):
            self.answer_widely(contexts, self.everywhere(integers, row_scale, previews), legal, result)
        return result

    def choose(
        self, integers: npt.NDArray[np.uint8], row_scale: FloatArray, reach: FloatArray, previews: FloatArray
    ) -> list[Indices]:
        """Ascending positions of each row's candidates."""
        chosen, bars, opened = [], [], []
        for row, preview in enumerate(previews):
            positions, bar = reaching(preview, self.candidates, self.stride)
            chosen.append(positions if positions.size >= self.full_view else largest(preview, self.full_view))
            bars.append(bar)
            if self.rare is not None and level(preview[chosen[row]]) * row_scale[row, 0] - reach[row] < self.margin:
                opened.append(row)
        if opened:
            assert self.rare is not None
            rare = self.rare(integers=integers[opened], row_scale=row_scale[opened])[0]
            for row, preview in zip(opened, rare, strict=True):
                extra = (preview >= bars[row]).nonzero()[0]
                chosen[row] = np.concatenate([chosen[row], extra + self.common])
        return chosen

    def score(self, context: FloatArray, positions: Indices, full_view: int) -> tuple[IdArray, FloatArray, FloatArray]:
        """Ids and exact logits of the best `full_view` candidates by int8 rows, and log of the sum of all exp."""
        count = np.array([min(full_view, positions.size)])
        ids, logits, inside = self.rescore(context=context, positions=positions, full_view=count)
        return ids, logits, inside[0]

    def everywhere(self, integers: npt.NDArray[np.uint8], row_scale: FloatArray, previews: FloatArray) -> FloatArray:
        """Previews [B, m] of common and rare classes, in units of a row's own."""
        if self.rare is None:
            return previews
        return np.concatenate([previews, self.rare(integers=integers, row_scale=row_scale)[0]], axis=1)

    def answer_widely(self, contexts: FloatArray, previews: FloatArray, legal: ClassFilter, result: PlanResult) -> None:
        """Ids and logits anew, from more candidates or from legal ones alone; the normaliser stays."""
        k = result.ids.shape[1]
        for row, preview in enumerate(previews):
            mask = legal.mask(self.order, row)
            positions = largest(
                np.where(mask, preview, np.float32(-np.inf)), min(preview.size, max(self.candidates, WIDEN * k))
            )
            ids = np.sort(self.order[positions[mask[positions]]])
            logits = self.rows.of(contexts[row], ids)
            result.scored[row] = max(result.scored[row], ids.size)
            result.ids[row], result.logits[row] = take_best(logits, ids, k)

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer."""
        return self.topk(contexts, 1, UNRESTRICTED).log_normalizer

    def width(self, k: int) -> int:
        """See Plan.width: a k that widens has candidates of its own."""
        return k if self.widened(k) else 0

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return chunk_rows(self.common)


def level(previews: FloatArray) -> np.float32:
    """The `RANK`-th best of a row's candidates [n], or the last where there are fewer."""
    return nth_largest(previews, min(RANK, previews.size))
