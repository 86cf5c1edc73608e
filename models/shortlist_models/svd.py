"""SVD-softmax: a low-rank preview of all classes, exact logits for the best N.

Shim, Lee, Choi, Boo and Sung, "SVD-Softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks",
NIPS 2017, Algorithm 1. Two bases:

- `weight_basis`, as published: W = U S V^T; the preview keeps the first columns of U S and of V^T h.
- `context_basis`: the SVD of W L with L L^T = E[h h^T]. It minimises the expected squared error of the preview
  over contexts, not over all directions: hidden states of transformers use few of those.

The preview is held in float32, or in int8 with one scale per class and one per context vector.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .full import FullSoftmax

RIDGE = 1e-4  # share of the mean squared component of a context added to every direction
LEVELS = 127.0
MOST = 3  # the largest of 4 odd numbers
CLIPS = (0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25)
SHIFTS = 41  # tail shifts that calibration tries


class Basis(NamedTuple):
    """weight ~= preview @ projection.T: preview [V, width], projection [d, width]."""

    preview: Tensor
    projection: Tensor
    singular_values: Tensor


def weight_basis(weight: Tensor, width: int) -> Basis:
    """The first `width` singular directions of `weight` [V, d], in float64."""
    return weighted_basis(weight.double(), torch.eye(weight.shape[1], dtype=torch.float64), width)


def context_basis(weight: Tensor, contexts: Tensor, width: int) -> Basis:
    """The best rank-`width` preview of `weight` [V, d] for `contexts` [n, d] in mean square, in float64."""
    second_moment = moment(contexts)
    scale = second_moment.trace() / len(second_moment)
    ridge = RIDGE * (scale if scale > 0 else torch.ones_like(scale))  # contexts of zeros prefer no direction
    factor = torch.linalg.cholesky(second_moment + ridge * torch.eye(len(second_moment), dtype=torch.float64))
    return weighted_basis(weight.double(), factor, width)


def moment(contexts: Tensor, chunk: int = 65_536) -> Tensor:
    """E[h h^T], [d, d] float64, over `contexts` [n, d]."""
    dim = contexts.shape[1]
    total = torch.zeros(dim, dim, dtype=torch.float64)
    for start in range(0, len(contexts), chunk):
        part = contexts[start : start + chunk].double()
        total += part.T @ part
    return total / len(contexts)


def weighted_basis(weight: Tensor, factor: Tensor, width: int) -> Basis:
    """SVD of weight @ factor, [V, d] @ [d, d], by the eigenvectors of its small Gram matrix."""
    product = weight @ factor
    eigenvalues, directions = torch.linalg.eigh(product.T @ product)
    directions = directions.flip(1)[:, :width]
    projection = torch.linalg.solve(factor.T, directions)
    preview = product @ directions
    singular_values = eigenvalues.flip(0).clamp(min=0).sqrt()
    return Basis(preview.float().contiguous(), projection.float().contiguous(), singular_values.float())


def quantize_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """[n, m] float32 -> integers -127..127 as float32 [n, m] and a scale per row [n, 1]; row ~= integers * scale."""
    scale = values.abs().amax(dim=1, keepdim=True) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (values / scale).round(), scale


def quantize_two_bits(values: Tensor) -> tuple[Tensor, Tensor]:
    """[n, m] float32 -> -3, -1, 1 or 3 as float32 [n, m] and a scale per row [n, 1]: 2 bits a number.

    The scale is the one of `CLIPS` that loses least, in mean square: a row's few largest numbers may be cut.
    """
    if not values.shape[1]:
        return values, torch.ones(len(values), 1)
    peak = values.abs().amax(dim=1, keepdim=True)
    peak = torch.where(peak > 0, peak, torch.ones_like(peak))
    odd, scale = odd_levels(values, peak / MOST), peak / MOST
    least = ((odd * scale - values) ** 2).sum(dim=1, keepdim=True)
    for clip in CLIPS:
        other = peak * clip / MOST
        levels = odd_levels(values, other)
        lost = ((levels * other - values) ** 2).sum(dim=1, keepdim=True)
        odd, scale = torch.where(lost < least, levels, odd), torch.where(lost < least, other, scale)
        least = torch.minimum(lost, least)
    return odd, torch.where(values.any(dim=1, keepdim=True), scale, 0.0)  # no odd number is 0


def odd_levels(values: Tensor, scale: Tensor) -> Tensor:
    """The nearest of -3, -1, 1 and 3 to `values / scale`."""
    half = (MOST + 1) // 2
    return 2 * (values / (2 * scale) - 0.5).round().clamp(-half, half - 1) + 1


class SVDSoftmax(nn.Module):
    """Algorithm 1 over a dense softmax.

    preview: [V, width], projection: [d, width], full_view: N. With `quantized`, preview products are taken
    between integers: weights quantised per class, each context vector on its own.
    """

    preview: Tensor
    projection: Tensor
    scale: Tensor

    def __init__(
        self, dense: FullSoftmax, basis: Basis, full_view: int, *, quantized: bool, tail_shift: float = 0.0
    ) -> None:
        """Keep the basis in the precision asked for; `tail_shift` is added to the previews that enter Z."""
        super().__init__()
        self.tail_shift = tail_shift
        self.dense = dense
        self.full_view = full_view
        self.quantized = quantized
        preview, scale = quantize_rows(basis.preview) if quantized else (basis.preview, torch.ones(1, 1))
        self.register_buffer("preview", preview)
        self.register_buffer("scale", scale)
        self.register_buffer("projection", basis.projection)

    @property
    def width(self) -> int:
        """W, the preview's width."""
        return self.projection.shape[1]

    def preview_logits(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V]: z~ = B[:, :W] (V^T h)[:W] + b."""
        projected, row_scale = contexts @ self.projection, torch.ones(1, 1)
        if self.quantized:
            projected, row_scale = quantize_rows(projected)
        products = projected @ self.preview.T * self.scale.T * row_scale
        return self.dense.finish(products if self.dense.bias is None else products + self.dense.bias)

    def calibrate_tail(self, contexts: Tensor) -> None:
        """Set `tail_shift` to what brings log Z closest on `contexts` [n, d], in mean absolute error.

        A truncated preview has too little variance, so the sum of its exponentials is too small (not in the paper).
        """
        parts = [self.masses(part) for part in torch.split(contexts, 256)]
        exact, head, tail, tail_of_exact = (torch.cat(values) for values in zip(*parts, strict=True))
        ratios = (tail_of_exact - tail)[(tail_of_exact - tail).isfinite()]
        if not ratios.numel():
            return  # the candidates are all there is
        shifts = torch.cat([torch.zeros(1), ratios.quantile(torch.linspace(0, 1, SHIFTS))])
        errors = [(torch.logaddexp(head, tail + shift) - exact).abs().mean() for shift in shifts]
        self.tail_shift = float(shifts[torch.stack(errors).argmin()])

    def masses(self, contexts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logs of sums of exponentials, [B] each: all exact, candidates, previews of the rest, the rest exactly."""
        previews, exact = self.preview_logits(contexts), self.dense.logits(contexts)
        candidates = previews.topk(self.full_view, dim=1).indices
        tail_of_exact = exact.scatter(1, candidates, -torch.inf).logsumexp(dim=1)
        tail = previews.scatter(1, candidates, -torch.inf).logsumexp(dim=1)
        return exact.logsumexp(dim=1), exact.gather(1, candidates).logsumexp(dim=1), tail, tail_of_exact

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids [B, k] and log-probabilities [B, k]; Z takes exact logits for the N candidates, previews for the rest."""
        logits = self.preview_logits(contexts)
        candidates = logits.topk(max(self.full_view, k), dim=1).indices
        exact = self.dense.logits(contexts).gather(1, candidates)
        tail = logits + self.tail_shift
        log_normalizer = tail.scatter(1, candidates, exact).logsumexp(dim=1, keepdim=True)
        best = exact.topk(k, dim=1)
        return candidates.gather(1, best.indices), best.values - log_normalizer
