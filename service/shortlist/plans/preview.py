"""Plan `preview`: a cheap pass over all classes, then exact scores for the best of them."""

from __future__ import annotations

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, log_sum_exp, take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import largest
from shortlist.runtime.session import Graph

DENSE_SHARE = 4
WIDEN = 4  # a request for k classes rescores at least 4 k candidates


class PreviewPlan(Plan):
    """preview.onnx: `context` [B, d] -> `logits` [B, V]; then ExactRows for the candidates.

    The normaliser takes exact logits for the candidates and previews for the rest: `estimated`.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open both graphs; the preview is small, so its weights are prepacked."""
        self.classes = bundle.manifest.classes
        self.full_view = int(bundle.manifest.options["full_view"])
        self.tail_shift = np.float32(bundle.manifest.options.get("tail_shift", 0.0))
        self.preview = Graph(bundle.graph("preview"), device, threads, prepack=True, fixed=True)
        self.rows = ExactRows(bundle, device, threads)

    def candidates(self, k: int) -> int:
        """How many classes are rescored for each row: N, widened by the row's own k, at most V."""
        return min(self.classes, max(self.full_view, WIDEN * k))

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense: from a quarter of all classes on, rescoring costs more than scoring all."""
        return self.candidates(k) > max(self.full_view, self.classes // DENSE_SHARE)

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the number of candidates."""
        previews: FloatArray = self.preview(context=contexts)[0]
        result = empty_result(len(contexts), k)
        if legal.restricts:
            for row, preview in enumerate(previews):
                self.answer_restricted(contexts[row], preview, legal, row, result)
            return result
        ids = self.choose(previews, self.candidates(k))
        result.scored.fill(ids.shape[1])
        for row, exact in enumerate(self.rows(contexts, ids)):
            result.log_normalizer[row] = self.normalize(previews[row], ids[row], exact)
            result.ids[row], result.logits[row] = take_best(exact, ids[row], k)
        return result

    def answer_restricted(
        self, context: FloatArray, preview: FloatArray, legal: ClassFilter, row: int, result: PlanResult
    ) -> None:
        """One row with an allow or ban list: the best legal previews are rescored.

        So are, for the normaliser, the best of all: a class has the log-probability that it has without the lists.
        """
        k = result.ids.shape[1]
        ids = np.union1d(largest(legal.restrict(preview, row), self.candidates(k)), largest(preview, self.full_view))
        exact = self.rows.of(context, ids)
        result.scored[row] = ids.size
        result.log_normalizer[row] = self.normalize(preview, ids, exact)
        legal_logits = np.where(legal.mask(ids, row), exact, np.float32(-np.inf))
        result.ids[row], result.logits[row] = take_best(legal_logits, ids, k)

    @staticmethod
    def choose(previews: FloatArray, n: int) -> IdArray:
        """Candidates [B, n], ascending."""
        ids = np.empty((len(previews), n), np.int64)
        for row, preview in enumerate(previews):
            ids[row] = largest(preview, n)
        return ids

    def normalize(self, preview: FloatArray, ids: IdArray, exact: FloatArray) -> np.float32:
        """Log of the sum over exact candidates and previews shifted by `tail_shift`. Overwrites `preview` [V]."""
        preview[ids] = exact - self.tail_shift
        return self.tail_shift + log_sum_exp(preview)

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer; candidates exact, the rest previewed."""
        return self.topk(contexts, 1, ClassFilter()).log_normalizer

    def distribution(self, contexts: FloatArray) -> FloatArray:
        """See Plan.distribution; candidates exact, the rest previewed and shifted by `tail_shift`."""
        previews: FloatArray = self.preview(context=contexts)[0]
        ids = self.choose(previews, self.candidates(1))
        logits = previews + self.tail_shift
        np.put_along_axis(logits, ids, self.rows(contexts, ids), axis=1)
        return logits

    def width(self, k: int) -> int:
        """See Plan.width."""
        return self.candidates(k)

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return chunk_rows(self.classes)
