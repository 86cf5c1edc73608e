"""The cost of a product on this machine: a model of two lines, fitted to times that were measured.

Grave et al., ICML 2017, section 4.1: a product of B contexts of width d with k classes takes g(k, B) = max(c + lambda
k0 B0, c + lambda k B) seconds, flat while the product is small. Measured here, for widths other than d too, in
multiply-adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

TRAINING_TIMED_CLASSES = (16, 64, 256, 1024, 2048, 4096, 8192)
TIMING_REPEATS = 5
FLAT_END_STEPS = 24  # values tried for where the flat part ends
EXTRA_WIDTHS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class CostModel:
    """seconds = constant + slope * max(flat, multiply-adds), where a class of width h counts as one of h + extra.

    constant: c, seconds. slope: lambda / d, seconds a multiply-add. flat: d k0 B0. extra: what a class costs whatever
    its width (exponentials, sorting), as a width.
    """

    constant: float
    slope: float
    flat: float = 0.0
    extra: float = 0.0

    def seconds(self, classes: float, rows: float, width: float, projection_dim: float = 0.0) -> float:
        """Predicted time of `rows` contexts against `classes` of `width`.

        projected: d, where the contexts are first projected from d to `width` dimensions.
        """
        work = rows * (classes * (width + self.extra) + projection_dim * width)
        return self.constant + self.slope * max(self.flat, work)

    def k0(self, dim: int, batch: int) -> float:
        """The paper's k0 for B0 = `batch`: up to this many classes the time does not grow."""
        return self.flat / (dim + self.extra) / batch


@dataclass(frozen=True)
class Sample:
    """One timed product of `rows` contexts of `width` with `classes`."""

    rows: int
    classes: int
    width: int
    seconds: float


def fit_cost_model(samples: Sequence[Sample]) -> CostModel:
    """The cost model with the least sum of squared relative errors over `samples`."""
    most_work = max(one.rows * one.classes * one.width for one in samples)
    flats = [0.0, *torch.logspace(-5, -0.3, FLAT_END_STEPS, dtype=torch.float64).mul(most_work).tolist()]
    models = [fit_constant_and_slope(samples, flat, float(extra)) for flat in flats for extra in EXTRA_WIDTHS]
    return min(models, key=lambda model: sum(relative_error(model, one) ** 2 for one in samples))


def fit_constant_and_slope(samples: Sequence[Sample], flat: float, extra: float) -> CostModel:
    """The best constant and slope, neither of them negative, for a given flat part and extra width."""
    seconds = torch.tensor([one.seconds for one in samples], dtype=torch.float64)
    work = torch.tensor([max(flat, one.rows * one.classes * (one.width + extra)) for one in samples]).double()
    design = torch.stack([torch.ones_like(work), work], dim=1) / seconds[:, None]
    constant, slope = torch.linalg.lstsq(design, torch.ones_like(work)[:, None]).solution[:, 0].tolist()
    if constant < 0:
        constant, slope = 0.0, float((design[:, 1] @ torch.ones_like(work)) / (design[:, 1] @ design[:, 1]))
    return CostModel(constant, max(slope, 0.0), flat, extra)


def relative_error(model: CostModel, one: Sample) -> float:
    """How far the model is off a sample's time, as a share of it."""
    return model.seconds(one.classes, one.rows, one.width) / one.seconds - 1


def time_training(dim: int, batch: int, sizes: Sequence[int] = TRAINING_TIMED_CLASSES) -> list[Sample]:
    """Time forward and backward passes of softmax layers of width d and narrower, at several sizes."""
    widths = sorted({max(1, dim // divisor) for divisor in (1, 4, 16)})
    return [
        Sample(rows, size, width, time_step(rows, size, width))
        for rows in sorted({batch, max(1, batch // 8)})
        for width in widths
        for size in sizes
    ]


def time_step(rows: int, classes: int, width: int) -> float:
    """Seconds of a forward and backward pass on random contexts."""
    layer = nn.Linear(width, classes, bias=False)
    contexts = torch.randn(rows, width, requires_grad=True)
    targets = torch.randint(classes, (rows,))

    def step() -> None:
        nn.functional.cross_entropy(layer(contexts), targets).backward()  # type: ignore[no-untyped-call]

    return time_call(step)


def time_call(call: Callable[[], None], repeats: int = TIMING_REPEATS) -> float:
    """The least seconds of a few calls after one to warm up; the least, since other work only adds time."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
