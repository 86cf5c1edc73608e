"""Where an adaptive softmax is cut: the least predicted time, by dynamic programming over cut points.

Grave et al., ICML 2017, sections 4.1 and 4.2: a product of B contexts of width d with k classes takes
g(k, B) = max(c + lambda k0 B0, c + lambda k B), flat while the product is small. Measured here, for widths other than d
too, in multiply-adds. Not in the paper: how often a tail is opened may be measured instead of taken from the
frequencies (serving), and a small batch opens a tail only now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .softmax import check_widths, widths_of

GRID = 100  # cut points tried, log-spaced
COVERAGE = 0.8  # least share of the targets in the head
LEAST_GAIN = 1.5  # under this gain over the full softmax it does not pay
SIZES = (16, 64, 256, 1024, 2048, 4096, 8192)  # classes timed
CLOSE = 1.05
REPEATS = 5
FLATS = 24  # values tried for where the flat part ends
EXTRAS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def least_coverage(tail: int, div_value: float) -> float:
    """Least share of the targets before tail 0, 1, ...

    Time alone would put all classes into the narrowest tail. A tail that is `div_value` times narrower than the one
    before may hold as many times fewer of the targets (not in the paper, whose cutoffs do so of themselves).
    """
    return 1 - (1 - COVERAGE) / div_value**tail


@dataclass(frozen=True)
class CostModel:
    """g. seconds = constant + slope * max(flat, multiply-adds), where a class of width h counts as width h + extra.

    constant: c, seconds. slope: lambda / d, seconds a multiply-add. flat: d k0 B0. extra: what a class costs whatever
    its width (exponentials, sorting), as a width.
    """

    constant: float
    slope: float
    flat: float = 0.0
    extra: float = 0.0

    def seconds(self, classes: float, rows: float, width: float, projected: float = 0.0) -> float:
        """Of `rows` contexts against `classes` of `width`; projected: d, where they come through a projection."""
        work = rows * (classes * (width + self.extra) + projected * width)
        return self.constant + self.slope * max(self.flat, work)

    def k0(self, dim: int, batch: int) -> float:
        """The paper's k0 for B0 = `batch`: up to so many classes the time does not grow."""
        return self.flat / (dim + self.extra) / batch


@dataclass(frozen=True)
class Layer:
    """What is cut: V, d, and the narrowing of torch's rule. batch: rows at a time, 1 for serving."""

    classes: int
    dim: int
    batch: int = 1
    div_value: float = 4.0


@dataclass(frozen=True)
class Cuts:
    """A choice. cutoffs: positions, none for the full softmax. seconds, full: predicted. coverage: of the head."""

    cutoffs: tuple[int, ...]
    seconds: float
    full: float
    coverage: float

    @property
    def gain(self) -> float:
        """How many times faster than the full softmax."""
        return self.full / self.seconds

    @property
    def pays(self) -> bool:
        """Whether the gain is worth an approximation."""
        return bool(self.cutoffs) and self.gain >= LEAST_GAIN

    def sentence(self) -> str:
        """For people."""
        if not self.pays:
            return (
                f"adaptive softmax does not pay here: at best {self.gain:.2f} times as fast as the full softmax with "
                f"{COVERAGE:.0%} of the targets in the head; use the full softmax, or a method that screens"
            )
        cut = ", ".join(f"{cutoff:,}" for cutoff in self.cutoffs)
        return f"cutoffs {cut}: {self.gain:.1f} times as fast as the full softmax, {self.coverage:.0%} in the head"


def cut_points(counts: Tensor, most: int = GRID) -> list[int]:
    """Positions that may be cuts, log-spaced from the least head that covers enough of `counts` [V] to V."""
    classes = len(counts)
    cumulated = smoothed(counts).cumsum(0)
    first = int((cumulated < COVERAGE).sum()) + 1
    spaced = torch.linspace(math.log(first), math.log(classes), most, dtype=torch.float64).exp()
    return sorted({first, *spaced.round().long().clamp(first, classes).tolist(), classes})


def smoothed(counts: Tensor) -> Tensor:
    """[V]: shares of targets. What never occurred may still come: as often, in all, as what occurred once (Turing)."""
    once = max(1, int((counts == 1).sum()))
    more = counts.double() + once / len(counts)
    return more / more.sum()


def target_shares(counts: Tensor, points: Sequence[int]) -> Tensor:
    """[G, G]: share of targets between two cut points, from `counts` [V] by position."""
    cumulated = smoothed(counts).cumsum(0)[torch.tensor(points) - 1]
    return (cumulated[None] - cumulated[:, None]).clamp(min=0)


def opening_shares(log_prob: Tensor, points: Sequence[int], k: int) -> Tensor:
    """[G, G]: share of contexts that must open a tail between two cut points to know their k best.

    log_prob: [n, V] by position. A tail must be opened where its probability is over that of the k-th best class: no
    class of it can be better than the whole.
    """
    bar = log_prob.topk(k, dim=1).values[:, -1:].exp()
    cumulated = log_prob.double().exp().cumsum(1)[:, torch.tensor(points) - 1]
    return torch.stack([(cumulated - start[:, None] > bar).double().mean(0) for start in cumulated.T])


def tail_seconds(model: CostModel, layer: Layer, share: float, classes: int, width: int) -> float:
    """Expected, over batches: those that open it at all pay for the rows that do."""
    some = 1 - (1 - min(share, 1.0)) ** layer.batch
    if some == 0:
        return 0.0
    return some * model.seconds(classes, layer.batch * share / some, width, layer.dim)


def predicted(model: CostModel, layer: Layer, shares: Callable[[int, int], float], cutoffs: Sequence[int]) -> float:
    """Seconds a batch of an adaptive softmax with these cutoffs; shares(start, end): how often that tail is opened."""
    total = model.seconds(cutoffs[0] + len(cutoffs), layer.batch, layer.dim)
    widths = widths_of(layer.dim, len(cutoffs), layer.div_value)
    for width, start, end in zip(widths, cutoffs, [*cutoffs[1:], layer.classes], strict=True):
        total += tail_seconds(model, layer, shares(start, end), end - start, width)
    return total


def best_cuts(
    model: CostModel,
    layer: Layer,
    counts: Tensor,
    points: Sequence[int],
    openings: Tensor | None = None,
    tails: Sequence[int] = (1, 2, 3, 4, 5),
) -> dict[int, Cuts]:
    """The best cutoffs for every number of tails that leaves a width of 1, by dynamic programming: J -> Cuts.

    counts: [V] of targets by position. points: ascending cut points that end with V. openings: [G, G] how often a tail
    between two of them is opened; by default the share of targets there (training). Raises ValueError where no
    tail has a width.
    """
    check_widths(widths_of(layer.dim, min(tails), layer.div_value))
    targets = target_shares(counts, points)
    opened = targets if openings is None else openings
    covered = 1 - targets[:, -1]
    full = model.seconds(layer.classes, layer.batch, layer.dim)
    deepest = [width for width in widths_of(layer.dim, max(tails), layer.div_value) if width]
    tables = [costs(model, layer, opened, points, width) for width in deepest]
    found = {}
    for number in tails:
        if number > len(tables) or len(points) <= number:
            continue
        places, seconds = programme(model, layer, covered, points, tables[:number])
        if places:
            cutoffs = tuple(points[place] for place in places)
            found[number] = Cuts(cutoffs, seconds, full, float(covered[places[0]]))
    return found


def programme(
    model: CostModel, layer: Layer, covered: Tensor, points: Sequence[int], tables: Sequence[Tensor]
) -> tuple[list[int], float]:
    """Indices of the cut points of least cost, and that cost; F_j(n) = min over m of cost_j(n, m) + F_{j+1}(m).

    tables: [G, G] for every tail, see `costs`. No indices, and infinity, where no head covers enough.
    """
    last = len(points) - 1
    rest = torch.full((len(points),), torch.inf, dtype=torch.float64)
    rest[last] = 0.0
    chosen: list[Tensor] = []
    for tail, table in reversed(list(enumerate(tables))):
        rest, following = (table + rest[None]).min(dim=1)
        rest[covered < least_coverage(tail, layer.div_value)] = torch.inf
        chosen.append(following)
    heads = [model.seconds(point + len(tables), layer.batch, layer.dim) for point in points]
    total = torch.tensor(heads, dtype=torch.float64) + rest
    place = int(total.argmin())
    seconds = float(total[place])
    if seconds == torch.inf:
        return [], seconds
    places = [place]
    for following in reversed(chosen[1:]):
        places.append(int(following[places[-1]]))
    return places, seconds


def costs(model: CostModel, layer: Layer, opened: Tensor, points: Sequence[int], width: int) -> Tensor:
    """[G, G] seconds of a tail between two cut points; infinite where the first is not below the second."""
    table = torch.full(opened.shape, torch.inf, dtype=torch.float64)
    for row, start in enumerate(points):
        for column in range(row + 1, len(points)):
            share = float(opened[row, column])
            table[row, column] = tail_seconds(model, layer, share, points[column] - start, width)
    return table


def fastest(found: dict[int, Cuts]) -> Cuts:
    """The fewest tails whose predicted time is within `CLOSE` of the least: no prediction is better than that."""
    least = min(cuts.seconds for cuts in found.values())
    return next(found[number] for number in sorted(found) if found[number].seconds <= CLOSE * least)


@dataclass(frozen=True)
class Sample:
    """One timed product: rows x width against classes."""

    rows: int
    classes: int
    width: int
    seconds: float


def fit(samples: Sequence[Sample]) -> CostModel:
    """The cost model of least squared relative error."""
    most = max(one.rows * one.classes * one.width for one in samples)
    flats = [0.0, *torch.logspace(-5, -0.3, FLATS, dtype=torch.float64).mul(most).tolist()]
    tried = [fitted(samples, flat, float(extra)) for flat in flats for extra in EXTRAS]
    return min(tried, key=lambda model: sum(relative_error(model, one) ** 2 for one in samples))


def fitted(samples: Sequence[Sample], flat: float, extra: float) -> CostModel:
    """Constant and slope, neither of them negative, for a given flat part and extra width."""
    seconds = torch.tensor([one.seconds for one in samples], dtype=torch.float64)
    work = torch.tensor([max(flat, one.rows * one.classes * (one.width + extra)) for one in samples]).double()
    design = torch.stack([torch.ones_like(work), work], dim=1) / seconds[:, None]
    constant, slope = torch.linalg.lstsq(design, torch.ones_like(work)[:, None]).solution[:, 0].tolist()
    if constant < 0:
        constant, slope = 0.0, float((design[:, 1] @ torch.ones_like(work)) / (design[:, 1] @ design[:, 1]))
    return CostModel(constant, max(slope, 0.0), flat, extra)


def relative_error(model: CostModel, one: Sample) -> float:
    """Of what the model says of a sample."""
    return model.seconds(one.classes, one.rows, one.width) / one.seconds - 1


def training_samples(dim: int, batch: int, sizes: Sequence[int] = SIZES, device: str = "cpu") -> list[Sample]:
    """Forward and backward of a softmax layer, of width d and narrower, at several sizes."""
    widths = sorted({max(1, dim // divisor) for divisor in (1, 4, 16)})
    return [
        Sample(rows, size, width, step_seconds(rows, size, width, device))
        for rows in sorted({batch, max(1, batch // 8)})
        for width in widths
        for size in sizes
    ]


def step_seconds(rows: int, classes: int, width: int, device: str) -> float:
    """Of one step on made-up rows."""
    layer = nn.Linear(width, classes, bias=False, device=device)
    contexts = torch.randn(rows, width, device=device, requires_grad=True)
    targets = torch.randint(classes, (rows,), device=device)

    def step() -> None:
        nn.functional.cross_entropy(layer(contexts), targets).backward()  # type: ignore[no-untyped-call]
        if device != "cpu":
            torch.cuda.synchronize(device)

    return least_seconds(step)


def least_seconds(call: Callable[[], None], repeats: int = REPEATS) -> float:
    """Of some calls, after one that is not counted; the least, since other work only adds."""
    call()
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return min(spent)
