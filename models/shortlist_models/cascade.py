"""A cascade for the best k classes: a screen, int8 previews, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From SVD-softmax (Shim et al. 2017): previews over a low rank, here in the basis that contexts use,
and exact scores for the best. From Learning to Screen (Chen et al. 2019): a linear screen decides what is looked at;
here whether the rare classes are looked at at all. From adaptive softmax (Grave et al. 2017): classes by falling
frequency, in two blocks. From quantised search: candidates are scored again by whole rows in int8 before a few dozen
are scored exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .full import FullSoftmax
from .svd import Basis, quantize_rows

RANK = 5  # the preview that the screen's reach is held against
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


class Candidates(NamedTuple):
    """Of one context: positions [n] in `order`, ascending, and whether the rare classes were looked at."""

    positions: Tensor
    opened: bool


class CascadeSoftmax(nn.Module):
    """order: [m] ids by falling frequency, padding left out; the first `common` are previewed for every context.

    preview, scale: [m, W] and [m, 1] int8 previews; projection [d, W]. codes, code_scale: [m, d] and [m, 1] int8 rows.
    candidates: about how many previews go on. full_view: how many of them are scored exactly. stride: every how
    many-th preview of the common classes is looked at for the threshold. reach: the best product among the rare
    classes; they are looked at where the `RANK`-th best preview is less than `margin` above it. tail: log of the sum of
    exp(logit) over all that are no candidates, held to at most `tail_limit` over that of the candidates.
    """

    order: Tensor

    def __init__(
        self, dense: FullSoftmax, basis: Basis, order: Tensor, common: int, candidates: int, full_view: int
    ) -> None:
        """Quantise; nothing is screened, and no tail is known, until `calibrate`."""
        super().__init__()
        self.dense, self.common, self.candidates, self.full_view = dense, common, candidates, full_view
        self.register_buffer("order", order)
        self.preview, self.scale = quantize_rows(basis.preview[order])
        self.projection = basis.projection
        self.weight = dense.weight[order]  # once: every chunk of contexts is multiplied with it
        self.codes, self.code_scale = quantize_rows(self.weight)
        self.bias = None if dense.bias is None else dense.bias[order]
        dim = dense.weight.shape[1]
        self.reach, self.tail = Linear(torch.zeros(dim), 0.0), Linear(torch.zeros(dim), -torch.inf)
        self.margin, self.tail_limit = torch.inf, 0.0

    @property
    def stride(self) -> int:
        """See the class."""
        return max(1, min(32, self.candidates // 8, self.common // 64))

    def products(self, contexts: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        """int8 products [B, m] of `contexts` [B, W or d], with the bias."""
        rows, row_scale = quantize_rows(contexts)
        found = rows @ weight.T * scale.T * row_scale
        return found if self.bias is None else found + self.bias

    def previews(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, m], before logit scale and soft-cap."""
        return self.products(contexts @ self.projection, self.preview, self.scale)

    def choose(self, preview: Tensor, reach: float) -> Candidates:
        """What of one row [m] goes on."""
        common = preview[: self.common]
        sample = common[:: self.stride]
        rank = min(len(sample), max(1, round(self.candidates / self.stride)))
        bar = sample.topk(rank).values[-1]
        level = common.topk(min(RANK, len(common))).values[-1]
        opened = self.common < len(preview) and bool(level - reach < self.margin)
        seen = preview if opened else common
        positions = (seen >= bar).nonzero()[:, 0]
        if len(positions) < self.full_view:
            positions = seen.topk(min(self.full_view, len(seen))).indices.sort().values
        return Candidates(positions, opened)

    def calibrate(self, contexts: Tensor, share: float) -> None:
        """Fit the screen on the first half of `contexts` [n, d]; on the second its margin, and then the tail on all.

        share: of contexts that look at the rare classes.
        """
        half = len(contexts) // 2
        if 0 < self.common < len(self.order):
            best = torch.cat(
                [self.raw(part)[:, self.common :].amax(dim=1) for part in torch.split(contexts[:half], CHUNK)]
            )
            self.reach = least_squares(contexts[:half], best)
            level = torch.cat([self.level(part) for part in torch.split(contexts[half:], CHUNK)])
            self.margin = float((level - self.reach(contexts[half:])).quantile(share))
        inside, outside = (
            torch.cat(parts) for parts in zip(*map(self.masses, torch.split(contexts, CHUNK)), strict=True)
        )
        known = outside.isfinite()
        if known.any():
            self.tail = least_squares(contexts[known], outside[known])
            self.tail_limit = float((outside - inside)[known].max())

    def raw(self, contexts: Tensor) -> Tensor:
        """Exact products with the bias [B, m], before logit scale and soft-cap."""
        found = contexts @ self.weight.T
        return found if self.bias is None else found + self.bias

    def level(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B]: the `RANK`-th best preview of the common classes."""
        return self.previews(contexts)[:, : self.common].topk(min(RANK, self.common), dim=1).values[:, -1]

    def masses(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """[B, d] -> [B], [B]: log of the sum of exp(logit) over the candidates, and over all other classes."""
        logits = self.finished(self.raw(contexts))
        inside = torch.full_like(logits, -torch.inf)
        for row, (preview, reach) in enumerate(zip(self.previews(contexts), self.reach(contexts), strict=True)):
            positions = self.choose(preview, float(reach)).positions
            inside[row, positions] = logits[row, positions]
            logits[row, positions] = -torch.inf
        return inside.logsumexp(dim=1), logits.logsumexp(dim=1)

    def finished(self, products: Tensor) -> Tensor:
        """Logit scale and soft-cap of products with the bias [B, m]."""
        return self.dense.finish(products, self.order.expand(len(products), -1))

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], for k up to `full_view`."""
        codes = self.finished(self.products(contexts, self.codes, self.code_scale))
        exact, tails = self.finished(self.raw(contexts)), self.tail(contexts)
        ids, logprobs = [], []
        for row, preview in enumerate(self.previews(contexts)):
            positions = self.choose(preview, float(self.reach(contexts[row : row + 1]))).positions
            logits = codes[row, positions]
            kept = logits.topk(min(self.full_view, len(positions))).indices
            logits[kept] = exact[row, positions[kept]]
            best = logits[kept].topk(k)
            ids.append(self.order[positions[kept[best.indices]]])
            inside = logits.logsumexp(dim=0)
            logprobs.append(best.values - torch.logaddexp(inside, tails[row].minimum(inside + self.tail_limit)))
        return torch.stack(ids), torch.stack(logprobs)


def least_squares(contexts: Tensor, values: Tensor) -> Linear:
    """The linear function of `contexts` [n, d] nearest to `values` [n], by ridge regression in float64."""
    mean, level = contexts.double().mean(dim=0), values.double().mean()
    centred = contexts.double() - mean
    gram = centred.T @ centred
    ridge = RIDGE * gram.trace() / len(gram) + torch.finfo(torch.float64).tiny
    gram.diagonal().add_(torch.where(ridge > 0, ridge, torch.ones_like(ridge)))
    vector = torch.linalg.solve(gram, centred.T @ (values.double() - level))
    return Linear(vector.float(), float(level - mean @ vector))


def by_frequency(dense: FullSoftmax, contexts: Tensor, depth: int = 5, temperature: float = 2.0) -> Tensor:
    """Ids [m] of all classes but padding, those first that are most often among the best `depth` of `contexts` [n, d].

    Classes that never are follow by their mean probability at `temperature`.
    """
    classes = len(dense.weight)
    score = torch.zeros(classes, dtype=torch.float64)
    for part in torch.split(contexts, CHUNK):
        logits = dense.logits(part)
        score += (logits / temperature).softmax(dim=1).sum(dim=0).double()
        best = logits.topk(min(depth, classes), dim=1).indices.reshape(-1)
        score += torch.bincount(best, minlength=classes)
    real = torch.ones(classes, dtype=torch.bool) if dense.padding is None else dense.padding == 0
    order = score.argsort(descending=True, stable=True)
    return order[real[order]]
