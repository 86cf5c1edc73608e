"""How often tails must be opened, and whether lazy answers are those of all classes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from shortlist.head import Head
from shortlist_models.adaptive import AdaptiveSoftmax
from torch import Tensor

DEPTHS = (1, 5, 10, 100)
CLOSE = 1e-5  # nats


@dataclass(frozen=True)
class Openings:
    """Of one k: share of rows that open each tail by falling cluster probability and in the order of the tails."""

    k: int
    least: list[float]
    ordered: list[float]


def openings(module: AdaptiveSoftmax, contexts: Tensor) -> list[Openings]:
    """By the rule written out, over the head's own distribution."""
    with torch.inference_mode():
        logprobs = torch.cat([module.log_prob(part) for part in torch.split(contexts, 512)])
    sections = module.sections()
    masses = [logprobs[:, ids].logsumexp(dim=1) for ids in sections[1:]]
    return [opening(logprobs, sections, masses, k) for k in DEPTHS]


def opening(logprobs: Tensor, sections: Sequence[Tensor], masses: Sequence[Tensor], k: int) -> Openings:
    """One k. By falling probability, exactly the tails over the final k-th best are opened."""
    final = logprobs.topk(k, dim=1).values[:, -1]
    best, ordered = logprobs[:, sections[0]].topk(k, dim=1).values, []
    for ids, mass in zip(sections[1:], masses, strict=True):
        reached = mass >= best[:, -1]
        more = torch.cat([best, logprobs[:, ids].topk(min(k, len(ids)), dim=1).values], dim=1).topk(k, dim=1).values
        best = torch.where(reached[:, None], more, best)
        ordered.append(float(reached.float().mean()))
    return Openings(k, [float((mass >= final).float().mean()) for mass in masses], ordered)


def openings_table(found: Sequence[Openings]) -> str:
    """One line a k."""
    lines = ["| k | opened, each tail | mean | by falling cluster probability, mean |\n|---|---|---|---|\n"]
    for one in found:
        shares = " ".join(f"{share:.3f}" for share in one.ordered)
        lines.append(f"| {one.k} | {shares} | {sum(one.ordered):.3f} | {sum(one.least):.3f} |\n")
    return "".join(lines)


@dataclass(frozen=True)
class Agreement:
    """Served answers against brute force: rows asked, share of ids in the same place, largest |error| in nats.

    beyond: how many of `values` log-probabilities are off by more than `CLOSE`.
    """

    rows: int
    depths: str
    same: float
    error: float
    beyond: int
    values: int


def agreement(head: Head, module: AdaptiveSoftmax, contexts: Tensor, depths: Sequence[int], said: str) -> Agreement:
    """Every k of `depths` by the service's plan, beside torch's own log_prob in float64, sorted."""
    same, error, asked_rows, true = 0.0, 0.0, 0, deepcopy(module).double()
    beyond = values = 0
    for rows in torch.split(contexts, 512):
        with torch.inference_mode():
            best = true.log_prob(rows.double()).topk(max(depths), dim=1)
        for k in depths:
            top = head.topk_by_plan(rows.numpy(), k)
            off = np.abs(top.logprobs - best.values[:, :k].numpy())
            beyond, values = beyond + int((off > CLOSE).sum()), values + off.size
            same += float((top.ids == best.indices[:, :k].numpy()).mean()) * len(rows)
            error = max(error, float(off.max()))
            asked_rows += len(rows)
    return Agreement(len(contexts), said, same / asked_rows, error, beyond, values)


def agreement_table(found: Sequence[Agreement]) -> str:
    """One line a test."""
    lines = [
        "| rows of test | k | ids in the same place | largest error of a log-probability | over 1e-5 "
        f"|\n{'|---' * 5}|\n"
    ]
    lines += [
        f"| {one.rows:,} | {one.depths} | {one.same:.5f} | {one.error:.1e} | {one.beyond} of {one.values:,} |\n"
        for one in found
    ]
    return "".join(lines)
