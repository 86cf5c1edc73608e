"""How often tails must be opened, and whether lazy answers are those of all classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.plans.registry import Plan
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.mixtures.mixtape import Mixtape
from torch import Tensor

OPENING_KS = (1, 5, 10, 100)
CLOSE_NATS = 1e-5


@dataclass(frozen=True)
class Openings:
    """Of one k: share of rows that open each tail by falling cluster probability and in the order of the tails."""

    k: int
    least: list[float]
    in_tail_order: list[float]


def measure_openings(module: AdaptiveSoftmax, contexts: Tensor) -> list[Openings]:
    """Measure openings by the rule itself, without the plan's code, over the head's own distribution."""
    with torch.inference_mode():
        logprobs = torch.cat([module.log_prob(part) for part in torch.split(contexts, 512)])
    sections = module.sections()
    masses = [logprobs[:, ids].logsumexp(dim=1) for ids in sections[1:]]
    return [measure_opening(logprobs, sections, masses, k) for k in OPENING_KS]


def measure_opening(logprobs: Tensor, sections: Sequence[Tensor], masses: Sequence[Tensor], k: int) -> Openings:
    """One k. By falling probability, exactly the tails over the final k-th best are opened."""
    final = logprobs.topk(k, dim=1).values[:, -1]
    best, shares = logprobs[:, sections[0]].topk(k, dim=1).values, []
    for ids, mass in zip(sections[1:], masses, strict=True):
        may_hold_best = mass >= best[:, -1]
        more = torch.cat([best, logprobs[:, ids].topk(min(k, len(ids)), dim=1).values], dim=1).topk(k, dim=1).values
        best = torch.where(may_hold_best[:, None], more, best)
        shares.append(float(may_hold_best.float().mean()))
    return Openings(k, [float((mass >= final).float().mean()) for mass in masses], shares)


def format_openings(openings: Sequence[Openings]) -> str:
    """A table with a line for each k."""
    lines = ["| k | opened, each tail | mean | by falling cluster probability, mean |\n|---|---|---|---|\n"]
    for one in openings:
        shares = " ".join(f"{share:.3f}" for share in one.in_tail_order)
        lines.append(f"| {one.k} | {shares} | {sum(one.in_tail_order):.3f} | {sum(one.least):.3f} |\n")
    return "".join(lines)


Truth = Callable[[Tensor], Tensor]
Module = AdaptiveSoftmax | Mixtape


def make_served_distribution(plan: Plan) -> Truth:
    """[b, d] -> the log-probabilities [b, V] of the served head itself, every tail opened."""

    def truth(rows: Tensor) -> Tensor:
        logprobs = plan.compute_distribution(rows.numpy())
        assert logprobs is not None
        return torch.from_numpy(logprobs)

    return truth


def make_float64_distribution(module: Module) -> Truth:
    """[b, d] -> the log-probabilities [b, V] of the trained module by torch, in float64."""
    true = deepcopy(module).double()
    return lambda rows: true.log_prob(rows.double())


@dataclass
class Agreement:
    """Served answers against brute force: answers compared, ids that are no tie, largest |error| in nats.

    beyond: how many log-probabilities are off by more than `CLOSE`. wrong: how many ids' true values are further than
    that from what belongs in their place.
    """

    answers: int = 0
    wrong: int = 0
    error: float = 0.0
    beyond: int = 0

    def add(self, result: PlanResult, logprobs: Tensor, best: Tensor) -> None:
        """Answers [b, k], beside all true values [b, V] and the best of them, sorted."""
        due = best[:, : result.ids.shape[1]]
        off = (torch.from_numpy(result.logits) - due).abs()
        self.wrong += int(((logprobs.gather(1, torch.from_numpy(result.ids)) - due).abs() > CLOSE_NATS).sum())
        self.error, self.beyond = max(self.error, float(off.max())), self.beyond + int((off > CLOSE_NATS).sum())
        self.answers += off.numel()


def measure_agreement(
    plan: Plan, truths: Mapping[str, Truth], contexts: Tensor, depths: Sequence[int]
) -> dict[str, Agreement]:
    """Compare the plan's results with every truth, for every k of `depths`."""
    results = {name: Agreement() for name in truths}
    for rows in torch.split(contexts, 512):
        with torch.inference_mode():
            true = {name: truth(rows) for name, truth in truths.items()}
            best = {name: logprobs.topk(max(depths), dim=1).values for name, logprobs in true.items()}
        for k in depths:
            result = plan.topk(rows.numpy(), k, UNRESTRICTED)
            for name, one in results.items():
                one.add(result, true[name], best[name])
    return results


def format_agreement(results: Mapping[str, Agreement]) -> str:
    """A table with a line for each truth."""
    head = "brute force over", "answers", "wrong ids", "largest error of a log-probability", "over 1e-5"
    lines = [f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n"]
    lines += [
        f"| {name} | {one.answers:,} | {one.wrong} | {one.error:.1e} | {one.beyond} |\n"
        for name, one in results.items()
    ]
    return "".join(lines)
