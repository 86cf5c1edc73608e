"""A softmax behind a screen: clusters of contexts, each with its candidate classes, exactly scored.

This runs behind any screen, however it was trained. `training` is Learning to Screen's; calibrated tails, several
probes, the second stage and the fall-back are not in that paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import Basis, quantize_rows
from shortlist_models.tail import TailTerms, fit_terms

from .candidate_sets import make_indicator

TAIL_CHUNK_ROWS = 256
MAX_LIMIT = 80.0  # nats that a rest may be over its sets, or under


@dataclass(frozen=True)
class SecondStage:
    """An int8 preview inside the sets: preview [V, W] integers, scale [V, 1], projection [d, W].

    full_view: N, how many classes of the best previews are then scored exactly.
    """

    preview: Tensor
    scale: Tensor
    projection: Tensor
    full_view: int

    @staticmethod
    def from_basis(basis: Basis, full_view: int) -> SecondStage:
        """Quantise the preview of a basis, each class with its own scale."""
        preview, scale = quantize_rows(basis.preview)
        return SecondStage(preview, scale, basis.projection, full_view)


class ScreenedSoftmax(nn.Module):
    """Scores the classes of the clusters whose screen scores are best, exactly.

    vectors: [r, d] of the screen. sets: ascending ids of each cluster. tail: [r], log(Z / Z of the set), so that the
    normaliser of an answer is that of its set times exp(tail). probes: clusters that one context opens.
    tail_terms: where there are some, they give instead what the classes in no set add to a normaliser, at most
    `tail_limit` nats over what the sets add up to.
    """

    vectors: Tensor
    tail: Tensor

    def __init__(
        self, dense: FullSoftmax, vectors: Tensor, sets: list[Tensor], probes: int, second_stage: SecondStage | None
    ) -> None:
        """Take padded classes out of the sets."""
        super().__init__()
        self.dense = dense
        self.probes = probes
        self.probe_margin = 0.0
        self.low_rank: Basis | None = None
        self.tail_terms = TailTerms(torch.empty(0, dense.weight.shape[1]), torch.empty(0))
        self.tail_limit = 0.0
        self.second_stage = second_stage
        padding: Tensor | None = dense.padding
        self.sets = sets if padding is None else [ids[padding[ids] == 0] for ids in sets]
        self.register_buffer("vectors", vectors)
        self.register_buffer("tail", torch.zeros(len(sets)))

    def scores(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> scores of the clusters [B, r]."""
        scores: Tensor = contexts @ self.vectors.T
        return scores

    def low_rank_logits(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> logits [B, V] of all classes by the low-rank tail (paper, appendix A.3).

        [B, 0] without one.
        """
        if self.low_rank is None:
            return contexts.new_zeros(len(contexts), 0)
        products = contexts @ self.low_rank.projection @ self.low_rank.preview.T
        bias: Tensor | None = self.dense.bias
        return self.dense.finish(products if bias is None else products + bias)

    def margins(self, scores: Tensor) -> Tensor:
        """Scores [B, r] -> [B]: the difference of the two best over the size of the best; inf for a single cluster.

        Where the best score is 0, as for a context of zeros, the difference itself.
        """
        if scores.shape[1] < 2:
            return torch.full((len(scores),), torch.inf)
        best = scores.topk(2, dim=1).values
        size = best[:, 0].abs()
        return (best[:, 0] - best[:, 1]) / torch.where(size > 0, size, 1.0)

    def open_sets(self, row_scores: Tensor) -> Tensor:
        """Ascending ids of the clusters that one row [r] opens: `probes`, and one more under `probe_margin`."""
        count = self.probes + int(bool(self.margins(row_scores[None]) < self.probe_margin))
        best = row_scores.argsort(descending=True, stable=True)[:count]
        ids = torch.cat([self.sets[int(cluster)] for cluster in best])
        return ids if count == 1 else torch.unique(ids)

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids [B, k] int64 and log-probabilities [B, k], as the service answers without a second stage.

        k: at most the size of the smallest set.
        """
        scores, logits = self.scores(contexts), self.dense.logits(contexts)
        low_rank = self.low_rank_logits(contexts)
        ids: list[Tensor] = []
        logprobs: list[Tensor] = []
        for row, row_logits in zip(scores, logits, strict=True):
            candidates = self.open_sets(row)
            best = row_logits[candidates].topk(k)
            normalizer = row_logits[candidates].logsumexp(dim=0) + self.tail[row.argmax()]
            if self.low_rank is not None:
                rest = low_rank[len(ids)].index_fill(0, candidates, -torch.inf)
                normalizer = torch.logaddexp(normalizer, rest.logsumexp(dim=0))
            ids.append(candidates[best.indices])
            logprobs.append(best.values - normalizer)
        return torch.stack(ids), torch.stack(logprobs)

    def count_candidates(self, contexts: Tensor) -> float:
        """Mean number of distinct classes in the sets that `contexts` [n, d] open."""
        sizes = [float(len(self.open_sets(row))) for row in self.scores(contexts)]
        return float(torch.tensor(sizes).mean())

    def calibrate_tail(self, contexts: Tensor) -> None:
        """Set `tail` to the mean of log(Z / Z of the set) over each cluster's part of `contexts` [n, d].

        A cluster that none of them chooses gets the mean over all.
        """
        gaps, owners = [], []
        for part in torch.split(contexts, TAIL_CHUNK_ROWS):
            logits, scores = self.dense.logits(part), self.scores(part)
            inside = torch.stack(
                [
                    row_logits[self.open_sets(row)].logsumexp(dim=0)
                    for row_logits, row in zip(logits, scores, strict=True)
                ]
            )
            gaps.append(logits.logsumexp(dim=1) - inside)
            owners.append(scores.argmax(dim=1))
        gap, owner = torch.cat(gaps), torch.cat(owners)
        counts = torch.bincount(owner, minlength=len(self.sets))
        sums = torch.zeros(len(self.sets)).index_add_(0, owner, gap)
        self.tail = torch.where(counts > 0, sums / counts.clamp(min=1), gap.mean())

    def fit_tail_terms(self, contexts: Tensor, start: TailTerms, seed: int) -> None:
        """Fit terms beside the sets that `contexts` [n, d] open, from a `start` on."""
        inside, whole = self.measure_sets(contexts)
        self.tail_terms = fit_terms(start, contexts, inside, whole, seed)
        rest = (whole - inside).clamp(min=0).expm1().log()
        self.tail_limit = float(rest.max().clamp(min=-MAX_LIMIT, max=MAX_LIMIT))

    def measure_sets(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """The logs [n] of what the sets of `contexts` [n, d] add up to as served, and of the sums over all classes."""
        indicator = make_indicator(self.sets, len(self.dense.weight)).bool()
        with torch.no_grad():
            parts = [self.measure_chunk(part, indicator) for part in torch.split(contexts, TAIL_CHUNK_ROWS)]
        inside, whole = zip(*parts, strict=True)
        return torch.cat(inside), torch.cat(whole)

    def measure_chunk(self, contexts: Tensor, indicator: Tensor) -> tuple[Tensor, Tensor]:
        """As `measure_sets`, of a few contexts [b, d], by the sets' `indicator` [r, V]."""
        logits, sets = self.dense.logits(contexts), self.mask_sets(self.scores(contexts), indicator)
        stage = self.second_stage
        if stage is None:
            return logits.masked_fill(~sets, -torch.inf).logsumexp(dim=1), logits.logsumexp(dim=1)
        products = contexts @ stage.projection @ (stage.preview * stage.scale).T
        previews = self.dense.finish(products if self.dense.bias is None else products + self.dense.bias)
        inside = previews.masked_fill(~sets, -torch.inf)
        best = inside.topk(min(stage.full_view, inside.shape[1]), dim=1).indices
        exact = logits.gather(1, best).masked_fill(~sets.gather(1, best), -torch.inf)
        return inside.scatter(1, best, exact).logsumexp(dim=1), logits.logsumexp(dim=1)

    def mask_sets(self, scores: Tensor, indicator: Tensor) -> Tensor:
        """Which classes [B, V] are in a set that rows with these cluster `scores` [B, r] open."""
        counts = self.probes + (self.margins(scores) < self.probe_margin).long()
        order = scores.argsort(dim=1, descending=True, stable=True)
        masks = [
            indicator[order[:, place]] & (counts > place)[:, None]
            for place in range(min(int(counts.max()), len(self.sets)))
        ]
        return torch.stack(masks).any(dim=0)

    def calibrate_dense_tail(self, contexts: Tensor, share: float) -> float | None:
        """The nats of the rest by terms over the sets' sum that `share` of `contexts` [n, d] are over; or None."""
        if share == 0:
            return None
        over = (self.tail_terms(contexts) - self.measure_sets(contexts)[0]).clamp(max=self.tail_limit)
        return float(over.quantile(1 - share))

    def calibrate_margin(self, contexts: Tensor, share: float) -> float:
        """The margin of the two best clusters that `share` of `contexts` [n, d] are under, in units of `margins`."""
        if share == 0 or len(self.sets) < 2:
            return 0.0
        return float(self.margins(self.scores(contexts)).quantile(share))
