"""Heads that choose candidates by a preview, score these by whole rows in int8, and the best of those exactly.

All other classes enter the normaliser by an estimate of the log of the sum of exp(logit) over them: linear in the
context, or of the terms that `tail` has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import multiply_integers, pack_rows, quantize_rows
from shortlist_models.tail import TailTerms, fit_terms, measure_best, start_terms

CALIBRATION_CHUNK_ROWS = 256  # contexts whose logits are computed at once, of layers that are not large
MAX_CHUNK_LOGITS = 1 << 25  # of large ones: 128 MiB in float32, of which a few are there at a time
LEAST_SHARE = 1e-5  # of a sum of exponentials, that float32 can tell
LEAST_SQUARES_RIDGE_SHARE = 1e-3  # of the mean squared component of a context


def ignore(_: int) -> None:
    """A progress that nobody sees."""


class LinearFunction(NamedTuple):
    """The function h -> h . vector + offset, with vector [d] float32."""

    vector: Tensor
    offset: float

    def __call__(self, contexts: Tensor) -> Tensor:
        """Contexts [n, d] -> values [n]."""
        values: Tensor = contexts @ self.vector + self.offset
        return values


class RescoredSoftmax(nn.Module):
    """order: [m] class ids in the head's own order, without padding; a class's position is its place in it.

    codes, code_scale: [m, d] int8 and [m, 1], the weights less `row_mean`, rounded. row_mean: [d], or None for zeros:
    it adds the same to all logits, and where rows have much in common little else would be left in int8. full_view: how
    many candidates are scored exactly.
    tail: the log of the sum of exp(logit) over all classes that are no candidates, at most `tail_limit` over that of
    the candidates. tail_terms: what is added to it; with terms, the tail is of all classes but the best `full_view`.
    """

    order: Tensor

    def __init__(self, dense: FullSoftmax, order: Tensor, full_view: int, row_mean: Tensor | None = None) -> None:
        """Quantise the weights. The tail counts for nothing until `fit_tail`."""
        super().__init__()
        self.dense, self.full_view, self.row_mean = dense, full_view, row_mean
        self.register_buffer("order", order)
        self.codes, self.code_scale = pack_rows(dense.weight, order, row_mean)
        self.bias = None if dense.bias is None else dense.bias[order]
        self.tail, self.tail_limit = LinearFunction(torch.zeros(dense.weight.shape[1]), -torch.inf), 0.0
        self.tail_terms = TailTerms(torch.empty(0, dense.weight.shape[1]), torch.empty(0))

    @abstractmethod
    def choose_candidates(self, contexts: Tensor) -> Iterator[Tensor]:
        """For each row of `contexts` [B, d] the positions [n] of its candidates, ascending."""

    def fit_tail(
        self, contexts: Tensor, terms: int = 0, seed: int = 0, progress: Callable[[int], None] = ignore
    ) -> None:
        """Fit `tail` and `tail_limit` to `contexts` [n, d]: a linear function, or so many terms.

        progress: gets the number of contexts of each chunk that was measured.
        """
        measure = self.measure_best if terms else self.measure_masses
        parts = []
        for part in torch.split(contexts, count_chunk_rows(len(self.order))):
            parts.append(measure(part))
            progress(len(part))
        inside, outside = (torch.cat(values) for values in zip(*parts, strict=True))
        finite = outside.isfinite()
        if not finite.any():
            return
        contexts, inside, outside = contexts[finite], inside[finite], outside[finite]
        self.tail_limit = float((outside - inside).max())
        if terms:
            start = start_terms(self.dense.weight, self.dense.bias, self.order, terms)
            self.tail = LinearFunction(torch.zeros_like(self.tail.vector), 0.0)
            self.tail_terms = fit_terms(start, contexts, inside, torch.logaddexp(inside, outside), seed)
        else:
            self.tail = fit_least_squares(contexts, outside)

    def guess_tail(self, contexts: Tensor) -> Tensor:
        """Contexts [n, d] -> logs [n] of the sum of exp(logit) over all classes that are no candidates."""
        return self.tail(contexts) + self.tail_terms(contexts)

    def multiply_exactly(self, contexts: Tensor) -> Tensor:
        """W h + b [B, m] by position, exactly, before logit scale and soft-cap."""
        products = (contexts @ self.dense.weight.T)[:, self.order]
        return products if self.bias is None else products + self.bias

    def multiply_codes(self, contexts: Tensor) -> Tensor:
        """W h + b [B, m] by position, of int8 rows and int8 contexts, before logit scale and soft-cap."""
        return multiply_int8(contexts, self.codes, self.code_scale, self.bias)

    def measure_masses(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts [B, d] -> logs [B] of the sum of exp(logit) over the candidates, and [B] over all other classes."""
        logits = self.dense.logits(contexts)  # by id: their order changes no sum
        inside, outside = logits.new_empty(2, len(logits))
        for row, positions in enumerate(self.choose_candidates(contexts)):
            ids = self.order[positions]
            inside[row] = logits[row, ids].logsumexp(dim=0)
            logits[row, ids] = -torch.inf
            outside[row] = logits[row].logsumexp(dim=0)
        return inside, outside

    def measure_best(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """As `measure_masses`, over the best `full_view` classes and over all other classes."""
        return measure_best(self.dense.logits(contexts), min(self.full_view, len(self.order)))

    def finish(self, products: Tensor) -> Tensor:
        """Apply logit scale and soft-cap to W h + b [B, m] by position."""
        return self.dense.finish(products, self.order.expand(len(products), -1))

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids [B, k] int64 and log-probabilities [B, k], for k up to `full_view`."""
        codes = self.finish(self.multiply_codes(contexts))
        exact, tails = self.finish(self.multiply_exactly(contexts)), self.guess_tail(contexts)
        ids, logprobs = [], []
        for row, positions in enumerate(self.choose_candidates(contexts)):
            logits = codes[row, positions]
            best_codes = logits.topk(min(self.full_view, len(positions))).indices
            logits[best_codes] = exact[row, positions[best_codes]]
            best = logits[best_codes].topk(k)
            ids.append(self.order[positions[best_codes[best.indices]]])
            scored, best_exact = logits.logsumexp(dim=0), logits[best_codes]
            counted = best_exact if len(self.tail_terms.offsets) else logits
            inside = counted.logsumexp(dim=0)
            limit = (inside + self.tail_limit).minimum(limit_rest(best_exact, counted, len(self.order)))
            guess = torch.logaddexp(inside, tails[row].minimum(limit))
            logprobs.append(best.values - guess.maximum(scored))
        return torch.stack(ids), torch.stack(logprobs)


def limit_rest(best: Tensor, counted: Tensor, classes: int) -> Tensor:
    """What the log-sum of other classes can be at most where those with logits `counted` [n] are the best of `classes`.

    best: logits [e] of the best of them. Each other class has at most the mean of the candidates beyond these, or the
    least of `best` where there are no more; of which float32 tells `LEAST_SHARE` of the sum.
    """
    rest, more = classes - len(counted), len(counted) - len(best)
    if not rest:
        return torch.tensor(-torch.inf)
    if not more:
        return best.min() + log(rest)
    left = 1 - (best.double() - counted.logsumexp(dim=0)).exp().sum()
    return counted.logsumexp(dim=0) + (left.clamp(min=LEAST_SHARE) * rest / more).log().float()


def count_chunk_rows(classes: int) -> int:
    """How many contexts' logits are computed at once over so many classes, 1 at least."""
    return max(1, min(CALIBRATION_CHUNK_ROWS, MAX_CHUNK_LOGITS // classes))


def multiply_int8(contexts: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Products [B, n] of `contexts` [B, c], rounded to int8, with int8 `weight` [n, c] times `scale` [n, 1].

    bias: [n], added to each product, or None.
    """
    rows, row_scale = quantize_rows(contexts)
    products = multiply_integers(rows, weight) * scale.T * row_scale
    return products if bias is None else products + bias


def fit_least_squares(contexts: Tensor, values: Tensor) -> LinearFunction:
    """The linear function of `contexts` [n, d] that is nearest to `values` [n], by ridge regression in float64."""
    mean, level = contexts.double().mean(dim=0), values.double().mean()
    centred = contexts.double() - mean
    gram = centred.T @ centred
    ridge = LEAST_SQUARES_RIDGE_SHARE * gram.trace() / len(gram) + torch.finfo(torch.float64).tiny
    gram.diagonal().add_(torch.where(ridge > 0, ridge, torch.ones_like(ridge)))
    vector = torch.linalg.solve(gram, centred.T @ (values.double() - level))
    return LinearFunction(vector.float(), float(level - mean @ vector))
