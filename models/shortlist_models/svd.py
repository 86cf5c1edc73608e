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

CONTEXT_BASIS_RIDGE_SHARE = 1e-4  # of the mean squared component of a context added to every direction
INT8_LEVELS = 127.0  # rows are rounded to -127..127
MAX_ODD_LEVEL = 3  # 2 bits hold -3, -1, 1 and 3
CLIP_SHARES = (0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25)  # of a row's largest number: scales that are tried
TAIL_SHIFT_STEPS = 41
MOMENT_CHUNK_ROWS = 1 << 16  # contexts whose second moments are summed at once, in float64
CHUNK_CLASSES = 1 << 16  # rows of a weight that are decomposed at once
ROUNDED_CLASSES = 1 << 11  # that are rounded at once: few enough that they stay in a processor's cache
MULTIPLIED_CLASSES = 1 << 13  # whose integers are multiplied at once, for the same reason


class Basis(NamedTuple):
    """weight ~= preview @ projection.T: preview [V, width], projection [d, width]."""

    preview: Tensor
    projection: Tensor
    singular_values: Tensor


def weight_basis(weight: Tensor, width: int) -> Basis:
    """The first `width` singular directions of `weight` [V, d], in float64."""
    return decompose_weighted(weight, torch.eye(weight.shape[1], dtype=torch.float64), width)


def context_basis(weight: Tensor, contexts: Tensor, width: int, mean: Tensor | None = None) -> Basis:
    """The best rank-`width` preview of `weight` [V, d] for `contexts` [n, d] in mean square, in float64.

    mean: [d], which is subtracted from all rows before.
    """
    second_moment = compute_second_moment(contexts)
    scale = second_moment.trace() / len(second_moment)
    # contexts of zeros prefer no direction
    ridge = CONTEXT_BASIS_RIDGE_SHARE * (scale if scale > 0 else torch.ones_like(scale))
    factor = torch.linalg.cholesky(second_moment + ridge * torch.eye(len(second_moment), dtype=torch.float64))
    return decompose_weighted(weight, factor, width, mean)


def compute_second_moment(contexts: Tensor) -> Tensor:
    """E[h h^T], [d, d] float64, over `contexts` [n, d]."""
    dim = contexts.shape[1]
    total = torch.zeros(dim, dim, dtype=torch.float64)
    for rows in torch.split(contexts, MOMENT_CHUNK_ROWS):
        part = rows.double()
        total += part.T @ part
    return total / len(contexts)


def decompose_weighted(weight: Tensor, factor: Tensor, width: int, mean: Tensor | None = None) -> Basis:
    """SVD of (weight - mean) @ factor, [V, d] @ [d, d], by the eigenvectors of its small Gram matrix.

    In float64, `CHUNK_CLASSES` rows at a time: a layer of millions of classes is never there twice. mean: [d], or None
    for zeros.
    """
    gram, subtracted = torch.zeros_like(factor), 0 if mean is None else mean.double()
    for rows in torch.split(weight, CHUNK_CLASSES):
        part = rows.double() - subtracted
        gram += part.T @ part
    eigenvalues, directions = torch.linalg.eigh(factor.T @ gram @ factor)
    directions = directions.flip(1)[:, :width]
    projection = torch.linalg.solve(factor.T, directions)
    change = factor @ directions
    preview = weight.new_empty(len(weight), directions.shape[1], dtype=torch.float32)
    for rows, part in zip(torch.split(weight, CHUNK_CLASSES), torch.split(preview, CHUNK_CLASSES), strict=True):
        part.copy_((rows.double() - subtracted) @ change)
    singular_values = eigenvalues.flip(0).clamp(min=0).sqrt()
    return Basis(preview, projection.float().contiguous(), singular_values.float())


def quantize_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows [n, m] float32 to integers -127..127, as float32 [n, m], with a scale a row [n, 1].

    row ~= integers * scale.
    """
    scale = values.abs().amax(dim=1, keepdim=True) / INT8_LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (values / scale).round(), scale


def pack_rows(values: Tensor, order: Tensor, mean: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The rows `order` [n] of `values` [V, m] as of `quantize_rows`, but in int8 [n, m], a chunk at a time.

    mean: [m], which is subtracted from all rows before.
    """
    codes, scale = torch.empty(len(order), values.shape[1], dtype=torch.int8), torch.empty(len(order), 1)
    for start in range(0, len(order), ROUNDED_CLASSES):
        part = slice(start, start + ROUNDED_CLASSES)
        integers, scale[part] = quantize_rows(values[order[part]] - (0 if mean is None else mean))
        codes[part] = integers.to(torch.int8)
    return codes, scale


def multiply_integers(levels: Tensor, codes: Tensor) -> Tensor:
    """Products [B, m] of float32 `levels` [B, n] with int8 `codes` [m, n], which are float32 a chunk at a time."""
    products = levels.new_empty(len(levels), len(codes))
    for start in range(0, len(codes), MULTIPLIED_CLASSES):
        part = slice(start, start + MULTIPLIED_CLASSES)
        products[:, part] = levels @ codes[part].float().T
    return products


def quantize_two_bits(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows [n, m] float32 to -3, -1, 1 or 3, as float32 [n, m], with a scale a row [n, 1]: 2 bits a number.

    The scale is the one of `CLIP_SHARES` of least mean square error: a row's few largest numbers may be cut.
    """
    if not values.shape[1]:
        return values, torch.ones(len(values), 1)
    peak = values.abs().amax(dim=1, keepdim=True)
    peak = torch.where(peak > 0, peak, torch.ones_like(peak))
    odd, scale = round_to_odd(values, peak / MAX_ODD_LEVEL), peak / MAX_ODD_LEVEL
    least_error = ((odd * scale - values) ** 2).sum(dim=1, keepdim=True)
    for clip in CLIP_SHARES:
        other = peak * clip / MAX_ODD_LEVEL
        levels = round_to_odd(values, other)
        error = ((levels * other - values) ** 2).sum(dim=1, keepdim=True)
        odd, scale = torch.where(error < least_error, levels, odd), torch.where(error < least_error, other, scale)
        least_error = torch.minimum(error, least_error)
    return odd, torch.where(values.any(dim=1, keepdim=True), scale, 0.0)  # no odd number is 0


def round_to_odd(values: Tensor, scale: Tensor) -> Tensor:
    """The number of -3, -1, 1 and 3 that is nearest to `values / scale`, elementwise."""
    half = (MAX_ODD_LEVEL + 1) // 2
    return 2 * (values / (2 * scale) - 0.5).round().clamp(-half, half - 1) + 1


class SVDSoftmax(nn.Module):
    """Algorithm 1 over a dense softmax.

    preview: [V, width], projection: [d, width], full_view: N. With `quantized`, preview products are taken
    between integers: weights quantised per class, each context vector on its own.
    """

    preview: Tensor
    projection: Tensor
    scale: Tensor

    def __init__(self, dense: FullSoftmax, basis: Basis, full_view: int, *, quantized: bool) -> None:
        """quantized: keep the preview in int8, else in float32.

        Of `calibrate_tail` are tail_shift, added to the previews that enter Z, and tail_size, the squared length from
        which contexts get the whole shift.
        """
        super().__init__()
        self.tail_shift, self.tail_size = 0.0, 0.0
        self.dense = dense
        self.full_view = full_view
        self.quantized = quantized
        preview, scale = quantize_rows(basis.preview) if quantized else (basis.preview, torch.ones(1, 1))
        self.register_buffer("preview", preview)
        self.register_buffer("scale", scale)
        self.register_buffer("projection", basis.projection)

    @property
    def width(self) -> int:
        """W, the number of dimensions of the preview."""
        return self.projection.shape[1]

    def preview_logits(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> preview logits [B, V]: z~ = (U S)[:, :W] (V^T h)[:W] + b."""
        projected, row_scale = contexts @ self.projection, torch.ones(1, 1)
        if self.quantized:
            projected, row_scale = quantize_rows(projected)
        products = projected @ self.preview.T * self.scale.T * row_scale
        return self.dense.finish(products if self.dense.bias is None else products + self.dense.bias)

    def calibrate_tail(self, contexts: Tensor) -> None:
        """Set `tail_shift` so that log Z has the least mean absolute error on `contexts` [n, d].

        A truncated preview has too little variance, so the sum of its exponentials is too small (not in the paper). The
        variance that is missing grows with the context's squared length: contexts shorter than those get less.
        """
        self.tail_size = float((contexts**2).sum(dim=1).mean())
        shares = self.measure_shares(contexts)
        parts = [self.measure_masses(part) for part in torch.split(contexts, 256)]
        exact, head, tail, tail_of_exact = (torch.cat(values) for values in zip(*parts, strict=True))
        ratios = (tail_of_exact - tail)[(tail_of_exact - tail).isfinite()]  # of exact sums to previewed ones
        if not ratios.numel():
            return  # the candidates are all there is
        shifts = torch.cat([torch.zeros(1), ratios.quantile(torch.linspace(0, 1, TAIL_SHIFT_STEPS))])
        errors = [(torch.logaddexp(head, tail + shares * shift) - exact).abs().mean() for shift in shifts]
        self.tail_shift = float(shifts[torch.stack(errors).argmin()])

    def measure_shares(self, contexts: Tensor) -> Tensor:
        """How much of `tail_shift` each of `contexts` [B, d] gets: [B], 0 to 1."""
        sizes = (contexts**2).sum(dim=1)
        return (sizes / self.tail_size).clamp(max=1) if self.tail_size > 0 else torch.ones_like(sizes)

    def measure_masses(self, contexts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logs of sums of exp(logit), [B] each: all classes; candidates; all others by preview; all others exactly."""
        previews, exact = self.preview_logits(contexts), self.dense.logits(contexts)
        candidates = previews.topk(self.full_view, dim=1).indices
        tail_of_exact = exact.scatter(1, candidates, -torch.inf).logsumexp(dim=1)
        tail = previews.scatter(1, candidates, -torch.inf).logsumexp(dim=1)
        return exact.logsumexp(dim=1), exact.gather(1, candidates).logsumexp(dim=1), tail, tail_of_exact

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Contexts [B, d] -> ids [B, k] int64 and log-probabilities [B, k].

        Z takes exact logits for the N candidates and previews for the other classes.
        """
        logits = self.preview_logits(contexts)
        candidates = logits.topk(max(self.full_view, k), dim=1).indices
        exact = self.dense.logits(contexts).gather(1, candidates)
        tail = logits + self.tail_shift * self.measure_shares(contexts)[:, None]
        log_normalizer = tail.scatter(1, candidates, exact).logsumexp(dim=1, keepdim=True)
        best = exact.topk(k, dim=1)
        return candidates.gather(1, best.indices), best.values - log_normalizer
