"""What heads share that score a few classes by whole rows in int8, and the best of those exactly.

The others enter the normaliser by a linear guess of the log of the sum of exp(logit) over them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import quantize_rows

CHUNK = 256
RIDGE = 1e-3  # share of the mean squared component of a context


class Linear(NamedTuple):
    """contexts @ vector + offset: vector [d] float32."""

    vector: Tensor
    offset: float

    def __call__(self, contexts: Tensor) -> Tensor:
        """[n, d] -> [n]."""
        found: Tensor = contexts @ self.vector + self.offset
        return found


class RescoredSoftmax(nn.Module):
    """order: [m] ids in the head's own order, padding left out; a class's position is its place there.

    codes, code_scale: [m, d] and [m, 1] int8 rows. full_view: how many candidates are scored exactly. tail: log of the
    sum of exp(logit) over all that are no candidates, held to at most `tail_limit` over that of the candidates.
    """

    order: Tensor

    def __init__(self, dense: FullSoftmax, order: Tensor, full_view: int) -> None:
        """Quantise; no tail is known until `fit_tail`."""
        super().__init__()
        self.dense, self.full_view = dense, full_view
        self.register_buffer("order", order)
        self.weight = dense.weight[order]  # once: every chunk of contexts is multiplied with it
        self.codes, self.code_scale = quantize_rows(self.weight)
        self.bias = None if dense.bias is None else dense.bias[order]
        self.tail, self.tail_limit = Linear(torch.zeros(dense.weight.shape[1]), -torch.inf), 0.0

    @abstractmethod
    def candidates_of(self, contexts: Tensor) -> Iterator[Tensor]:
        """Positions [n] of each row's candidates, ascending, for `contexts` [B, d]."""

    def fit_tail(self, contexts: Tensor) -> None:
        """Fit the tail on `contexts` [n, d]."""
        parts = [self.masses(part) for part in torch.split(contexts, CHUNK)]
        inside, outside = (torch.cat(values) for values in zip(*parts, strict=True))
        known = outside.isfinite()
        if known.any():
            self.tail = least_squares(contexts[known], outside[known])
            self.tail_limit = float((outside - inside)[known].max())

    def raw(self, contexts: Tensor) -> Tensor:
        """Exact products with the bias [B, m], before logit scale and soft-cap."""
        found = contexts @ self.weight.T
        return found if self.bias is None else found + self.bias

    def by_codes(self, contexts: Tensor) -> Tensor:
        """Products of int8 rows and int8 contexts with the bias [B, m], before logit scale and soft-cap."""
        return int8_products(contexts, self.codes, self.code_scale, self.bias)

    def masses(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """[B, d] -> [B], [B]: log of the sum of exp(logit) over the candidates, and over all other classes."""
        logits = self.finished(self.raw(contexts))
        inside = torch.full_like(logits, -torch.inf)
        for row, positions in enumerate(self.candidates_of(contexts)):
            inside[row, positions] = logits[row, positions]
            logits[row, positions] = -torch.inf
        return inside.logsumexp(dim=1), logits.logsumexp(dim=1)

    def finished(self, products: Tensor) -> Tensor:
        """Logit scale and soft-cap of products with the bias [B, m]."""
        return self.dense.finish(products, self.order.expand(len(products), -1))

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], for k up to `full_view`."""
        codes = self.finished(self.by_codes(contexts))
        exact, tails = self.finished(self.raw(contexts)), self.tail(contexts)
        ids, logprobs = [], []
        for row, positions in enumerate(self.candidates_of(contexts)):
            logits = codes[row, positions]
            kept = logits.topk(min(self.full_view, len(positions))).indices
            logits[kept] = exact[row, positions[kept]]
            best = logits[kept].topk(k)
            ids.append(self.order[positions[kept[best.indices]]])
            inside = logits.logsumexp(dim=0)
            logprobs.append(best.values - torch.logaddexp(inside, tails[row].minimum(inside + self.tail_limit)))
        return torch.stack(ids), torch.stack(logprobs)


def int8_products(contexts: Tensor, weight: Tensor, scale: Tensor, added: Tensor | None) -> Tensor:
    """int8 products [B, n] of `contexts` [B, W or d], and what is `added` to each of n."""
    rows, row_scale = quantize_rows(contexts)
    found = rows @ weight.T * scale.T * row_scale
    return found if added is None else found + added


def least_squares(contexts: Tensor, values: Tensor) -> Linear:
    """The linear function of `contexts` [n, d] nearest to `values` [n], by ridge regression in float64."""
    mean, level = contexts.double().mean(dim=0), values.double().mean()
    centred = contexts.double() - mean
    gram = centred.T @ centred
    ridge = RIDGE * gram.trace() / len(gram) + torch.finfo(torch.float64).tiny
    gram.diagonal().add_(torch.where(ridge > 0, ridge, torch.ones_like(ridge)))
    vector = torch.linalg.solve(gram, centred.T @ (values.double() - level))
    return Linear(vector.float(), float(level - mean @ vector))
