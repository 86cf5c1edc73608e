"""Where an adaptive softmax is cut: the least predicted time, by dynamic programming over cut points.

Grave et al., ICML 2017, section 4.2, with the cost model of section 4.1 (`cost_model`). Not in the paper: how often a
tail is opened may be measured instead of taken from the frequencies (for serving), and a small batch opens a tail only
now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .cost_model import CostModel
from .softmax import check_widths, compute_tail_widths

CUT_POINTS = 100  # cut points tried, log-spaced
MIN_HEAD_COVERAGE = 0.8  # least share of the targets in the head
MIN_GAIN = 1.5  # under this gain over the full softmax it does not pay
CLOSE_FACTOR = 1.05  # times within this factor of the least count as equal


def min_coverage(tail: int, div_value: float) -> float:
    """The least share of the targets that must lie before tail 0, 1, ...

    Time alone would put all classes into the narrowest tail. A tail that is `div_value` times narrower than the one
    before may hold that many times fewer of the targets (not in the paper, whose cutoffs do so anyway).
    """
    return 1 - (1 - MIN_HEAD_COVERAGE) / div_value**tail


@dataclass(frozen=True)
class Layer:
    """The softmax layer to cut.

    V, d, rows at a time (1 for serving), and how much narrower each tail is than the last.
    """

    classes: int
    dim: int
    batch: int = 1
    div_value: float = 4.0


@dataclass(frozen=True)
class Cuts:
    """Cutoffs and what they are predicted to cost.

    cutoffs: positions at which tails begin, none for the full softmax. seconds: of a batch, predicted. full: the same
    of the full softmax. coverage: share of the targets in the head.
    """

    cutoffs: tuple[int, ...]
    seconds: float
    full: float
    coverage: float

    @property
    def gain(self) -> float:
        """How many times as fast as the full softmax it is predicted to be."""
        return self.full / self.seconds

    @property
    def pays(self) -> bool:
        """Whether that is worth a head of its own: `MIN_GAIN` times as fast, at least."""
        return bool(self.cutoffs) and self.gain >= MIN_GAIN

    def sentence(self) -> str:
        """The choice as a sentence for the user."""
        if not self.pays:
            return (
                f"adaptive softmax does not pay here: at best {self.gain:.2f} times as fast as the full softmax with "
                f"{MIN_HEAD_COVERAGE:.0%} of the targets in the head; use the full softmax, or a method that screens"
            )
        cut = ", ".join(f"{cutoff:,}" for cutoff in self.cutoffs)
        return f"cutoffs {cut}: {self.gain:.1f} times as fast as the full softmax, {self.coverage:.0%} in the head"


def list_cut_points(counts: Tensor, most_points: int = CUT_POINTS) -> list[int]:
    """Positions to try as cuts, log-spaced from the least head that covers enough of the targets to V.

    counts: [V] of targets by position.
    """
    classes = len(counts)
    cumulative = smooth_shares(counts).cumsum(0)
    first = int((cumulative < MIN_HEAD_COVERAGE).sum()) + 1
    spaced = torch.linspace(math.log(first), math.log(classes), most_points, dtype=torch.float64).exp()
    return sorted({first, *spaced.round().long().clamp(first, classes).tolist(), classes})


def smooth_shares(counts: Tensor) -> Tensor:
    """Expected shares [V] of future targets, from `counts` [V].

    Classes that never occurred get as much, together, as the number that occurred once (Good-Turing).
    """
    once = max(1, int((counts == 1).sum()))
    smoothed = counts.double() + once / len(counts)
    return smoothed / smoothed.sum()


def sum_target_shares(counts: Tensor, points: Sequence[int]) -> Tensor:
    """[G, G]: the expected share of targets between two cut points, from `counts` [V] by position."""
    cumulative = smooth_shares(counts).cumsum(0)[torch.tensor(points) - 1]
    return (cumulative[None] - cumulative[:, None]).clamp(min=0)


def measure_opening_shares(log_prob: Tensor, points: Sequence[int], k: int) -> Tensor:
    """[G, G]: the share of contexts that must open a tail between two cut points to find their k best.

    log_prob: [n, V] by position. A tail must be opened where its probability is over that of the k-th best class, since
    one of its classes may then be among the k best.
    """
    bar = log_prob.topk(k, dim=1).values[:, -1:].exp()
    cumulative = log_prob.double().exp().cumsum(1)[:, torch.tensor(points) - 1]
    return torch.stack([(cumulative - start[:, None] > bar).double().mean(0) for start in cumulative.T])


def predict_tail_seconds(model: CostModel, layer: Layer, share: float, classes: int, width: int) -> float:
    """Expected seconds of a tail in a batch whose rows open it with probability `share`."""
    some = 1 - (1 - min(share, 1.0)) ** layer.batch
    if some == 0:
        return 0.0
    return some * model.seconds(classes, layer.batch * share / some, width, layer.dim)


def predict_seconds(
    model: CostModel, layer: Layer, shares: Callable[[int, int], float], cutoffs: Sequence[int]
) -> float:
    """Seconds of a batch of an adaptive softmax with these cutoffs.

    shares(start, end): the share of rows that open the tail between these positions.
    """
    total = model.seconds(cutoffs[0] + len(cutoffs), layer.batch, layer.dim)
    widths = compute_tail_widths(layer.dim, len(cutoffs), layer.div_value)
    for width, start, end in zip(widths, cutoffs, [*cutoffs[1:], layer.classes], strict=True):
        total += predict_tail_seconds(model, layer, shares(start, end), end - start, width)
    return total


def choose_cuts(
    model: CostModel,
    layer: Layer,
    counts: Tensor,
    points: Sequence[int],
    opening_shares: Tensor | None = None,
    tails: Sequence[int] = (1, 2, 3, 4, 5),
) -> dict[int, Cuts]:
    """The best cutoffs for every number J of tails that have a width of at least 1, by dynamic programming: J -> Cuts.

    counts: [V] of targets by position. points: ascending cut points that end with V. opening_shares: [G, G], how often
    a tail between two of them is opened; by default the share of targets there (training). Raises ValueError where no
    tail has a width.
    """
    check_widths(compute_tail_widths(layer.dim, min(tails), layer.div_value))
    targets = sum_target_shares(counts, points)
    shares = targets if opening_shares is None else opening_shares
    coverage = 1 - targets[:, -1]
    full = model.seconds(layer.classes, layer.batch, layer.dim)
    deepest = [width for width in compute_tail_widths(layer.dim, max(tails), layer.div_value) if width]
    tables = [tabulate_tail_seconds(model, layer, shares, points, width) for width in deepest]
    cuts_by_tails = {}
    for number in tails:
        if number > len(tables) or len(points) <= number:
            continue
        places, seconds = solve_cut_points(model, layer, coverage, points, tables[:number])
        if places:
            cutoffs = tuple(points[place] for place in places)
            cuts_by_tails[number] = Cuts(cutoffs, seconds, full, float(coverage[places[0]]))
    return cuts_by_tails


def solve_cut_points(
    model: CostModel, layer: Layer, coverage: Tensor, points: Sequence[int], tables: Sequence[Tensor]
) -> tuple[list[int], float]:
    """Indices of the cut points of least cost, and that cost: F_j(n) = min over m of cost_j(n, m) + F_{j+1}(m).

    tables: [G, G] for every tail, of `tabulate_tail_seconds`. No indices, and infinity, where no head covers enough.
    """
    last = len(points) - 1
    rest = torch.full((len(points),), torch.inf, dtype=torch.float64)
    rest[last] = 0.0
    next_places: list[Tensor] = []
    for tail, table in reversed(list(enumerate(tables))):
        rest, following = (table + rest[None]).min(dim=1)
        rest[coverage < min_coverage(tail, layer.div_value)] = torch.inf
        next_places.append(following)
    heads = [model.seconds(point + len(tables), layer.batch, layer.dim) for point in points]
    total = torch.tensor(heads, dtype=torch.float64) + rest
    place = int(total.argmin())
    seconds = float(total[place])
    if seconds == torch.inf:
        return [], seconds
    places = [place]
    for following in reversed(next_places[1:]):
        places.append(int(following[places[-1]]))
    return places, seconds


def tabulate_tail_seconds(model: CostModel, layer: Layer, shares: Tensor, points: Sequence[int], width: int) -> Tensor:
    """[G, G]: seconds of a tail between two cut points; infinite where the first is not below the second."""
    table = torch.full(shares.shape, torch.inf, dtype=torch.float64)
    for row, start in enumerate(points):
        for column in range(row + 1, len(points)):
            share = float(shares[row, column])
            table[row, column] = predict_tail_seconds(model, layer, share, points[column] - start, width)
    return table


def choose_fastest(cuts_by_tails: dict[int, Cuts]) -> Cuts:
    """The fewest tails whose predicted time is within `CLOSE_FACTOR` of the least: no prediction is more exact.

    Raises ValueError where there are none, of layers of a few classes.
    """
    if not cuts_by_tails:
        raise ValueError("these classes are too few to tell frequent from rare: choose the cutoffs, or another method")
    least_seconds = min(cuts.seconds for cuts in cuts_by_tails.values())
    return next(
        cuts_by_tails[number]
        for number in sorted(cuts_by_tails)
        if cuts_by_tails[number].seconds <= CLOSE_FACTOR * least_seconds
    )
