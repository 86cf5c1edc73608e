"""Plan `preview`: a cheap pass over all classes, then exact scores for the best of them."""

from __future__ import annotations

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import PreviewSettings
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import DENSE_DIVISOR, RESCORED_PER_K, Plan, chunk_rows, take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.plans.common.selection import Indices, find_largest
from shortlist.runtime.session import Graph


class PreviewPlan(Plan):
    """preview.onnx: `context` [B, d] -> `logits` [B, V]; then ExactRows for the candidates.

    The normaliser takes exact logits for the candidates and previews for the rest: `estimated`.
    """

    settings: PreviewSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open both graphs; the preview is small, so its weights are prepacked."""
        self.settings, self.fallback = bundle.settings(PreviewSettings), fallback
        self.classes = bundle.manifest.classes
        self.preview = Graph(bundle.graph("preview"), device, threads, prepack=True, fixed=True)
        self.exact_rows = ExactRows(bundle, device, threads)

    def count_candidates(self, k: int) -> int:
        """How many classes are scored exactly for a row: the setting `full_view`, or more for a large k; at most V."""
        return min(self.classes, max(self.settings.full_view, RESCORED_PER_K * k))

    def prefers_dense(self, k: int) -> bool:
        """From a quarter of all classes on, scoring candidates exactly costs more than scoring all."""
        return self.count_candidates(k) > max(self.settings.full_view, self.classes // DENSE_DIVISOR)

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of candidates."""
        previews: FloatArray = self.preview(context=contexts)[0]
        if class_filter.restricts:
            return self.search_permitted(contexts, previews, k, class_filter)
        ids = self.choose_candidates(previews, self.count_candidates(k))
        result = empty_result(len(contexts), k)
        result.scored.fill(ids.shape[1])
        shifts = self.shift_tails(contexts)
        for row, exact in enumerate(self.exact_rows(contexts, ids)):
            result.log_normalizer[row] = self.normalize(previews[row], ids[row], exact, shifts[row])
            result.ids[row], result.logits[row] = take_best(exact, ids[row], k)
        return result

    def search_permitted(
        self, contexts: FloatArray, previews: FloatArray, k: int, class_filter: ClassFilter
    ) -> PlanResult:
        """Rows with allow or ban lists: the best permitted classes by `previews` [B, V], overwritten, are rescored.

        So are, for the normaliser, the best of all: a class has the log-probability that it has without the lists.
        """
        result, shifts = empty_result(len(contexts), k), self.shift_tails(contexts)
        for row, (context, preview) in enumerate(zip(contexts, previews, strict=True)):
            permitted_preview = class_filter.restrict(preview, row)
            best = find_largest(permitted_preview, self.count_candidates(k))
            best = best[permitted_preview[best] > -np.inf]
            ids = np.union1d(best, find_largest(preview, self.count_candidates(1)))
            exact = self.exact_rows.score_row(context, ids)
            result.scored[row] = ids.size
            result.log_normalizer[row] = self.normalize(preview, ids, exact, shifts[row])
            permitted_logits = np.where(class_filter.mask(ids, row), exact, np.float32(-np.inf))
            result.ids[row], result.logits[row] = take_best(permitted_logits, ids, k)
        return result

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """The normaliser of `topk`, where exact logits of `ids`, too, take the place of their previews."""
        previews: FloatArray = self.preview(context=contexts)[0]
        candidates = self.choose_candidates(previews, self.count_candidates(1))
        exact, shifts = self.exact_rows(contexts, candidates), self.shift_tails(contexts)
        normalizers = np.empty(len(contexts), np.float32)
        for row, some in enumerate(candidates):
            others = find_others(ids[row], some)
            classes = np.concatenate([some, ids[row, others]])
            scores = np.concatenate([exact[row], logits[row, others]])
            normalizers[row] = self.normalize(previews[row], classes, scores, shifts[row])
        return normalizers

    @staticmethod
    def choose_candidates(previews: FloatArray, n: int) -> IdArray:
        """Candidates [B, n], ascending."""
        ids = np.empty((len(previews), n), np.int64)
        for row, preview in enumerate(previews):
            ids[row] = find_largest(preview, n)
        return ids

    def shift_tails(self, contexts: FloatArray) -> FloatArray:
        """[B, d] -> [B]: nats added to the previews of classes that are no candidates.

        They stand for the variance that previews lack, which grows with a context's squared length: none for zeros.
        """
        shift, size = self.settings.tail_shift, self.settings.tail_size
        if size is None:
            return np.full(len(contexts), shift, np.float32)
        with np.errstate(over="ignore"):  # a large context gets the whole shift
            shifts: FloatArray = np.float32(shift) * np.minimum(1, np.square(contexts).sum(axis=1) / np.float32(size))
        return shifts

    def normalize(self, preview: FloatArray, ids: IdArray, exact: FloatArray, shift: np.float32) -> np.float32:
        """Log of the sum over exact candidates and previews shifted by `shift`. Overwrites `preview` [V].

        It is no less than that of the candidates, whose logits may lose an ulp by the shift. NaN where a preview
        overflows: its candidates were chosen by no numbers.
        """
        if not preview[ids].max() < np.inf:
            return np.float32(np.nan)
        preview[ids] = exact - shift
        total: np.float32 = np.maximum(shift + log_sum_exp(preview), log_sum_exp(exact.copy()))
        return total

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Logits [B, V]: candidates exact, the rest previewed and shifted by `tail_shift`."""
        previews: FloatArray = self.preview(context=contexts)[0]
        ids = self.choose_candidates(previews, self.count_candidates(1))
        logits = previews + self.shift_tails(contexts)[:, None]
        np.put_along_axis(logits, ids, self.exact_rows(contexts, ids), axis=1)
        return logits

    def width(self, k: int) -> int:
        return self.count_candidates(k)

    def max_rows(self) -> int:
        return chunk_rows(self.classes)


def find_others(ids: IdArray, candidates: IdArray) -> Indices:
    """Where the classes stand in `ids` [m], -1 pads, that are not among the ascending `candidates` [n]; each once."""
    distinct, places = np.unique(ids, return_index=True)
    is_other = candidates.take(candidates.searchsorted(distinct), mode="clip") != distinct
    others: Indices = places[is_other & (distinct >= 0)]
    return others
