"""Whose tokens stay what the model alone gives: exact answers, promises, beams; kept kind by kind.

Prompts of one kind are one batch for every contender, so that the model's own rounding is the same for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from shortlist.bundle.manifest import Strict
from shortlist.head import Head

from benchmarks.common.runs import Store

from .speed import STRAIGHT_BEAM, Cell, generate, leave_as_it_is, replace_by_head

CONTINUED_TOKENS = {1: 32, 4: 16}  # by beams
WIDE_BEAM = 4
FORMAT = 1  # raise when what is generated, or how, changes
HEAD_FORMAT = 2  # raise when that changes for attached heads alone

Tensor = torch.Tensor
Prompts = dict[str, Tensor]


@dataclass(frozen=True)
class Contender:
    """Who continues the prompts. head: None for the model's own output layer. options: of `attach`."""

    name: str
    beams: int
    head: Head | None = None
    exact: bool = False
    promise: float | None = None

    @property
    def tokens(self) -> int:
        """How many tokens it continues with."""
        return CONTINUED_TOKENS[self.beams]

    @property
    def key(self) -> str:
        """What its tokens depend on, beside model and prompts."""
        digest = None if self.head is None else (HEAD_FORMAT, self.head.manifest.digest, self.head.kernels)
        return f"{FORMAT} {self.beams} {digest} {self.exact} {self.promise} {self.tokens}"


class Difference(Strict):
    """A continuation that differs. place: of its first other token. margin: nats by which the model prefers its own.

    The margin of greedy search is that of the two tokens at the place; of beams, that of the two whole continuations.
    """

    kind: str
    prompt: int
    place: int
    margin: float


def continue_prompts(model: Any, contender: Contender, prompts: Prompts, store: Store) -> Prompts:
    """Continuations [20, tokens] by kind; those that `store` has are taken from it."""
    tokens = {}
    for kind, rows in prompts.items():
        key = f"tokens-{hashlib.sha256(f'{contender.key} {rows.tolist()}'.encode()).hexdigest()[:20]}"
        if (stored := store.read(key)) is None:
            print(f"{contender.name}: {kind}", flush=True)
            stored = continue_rows(model, contender, rows).tolist()
            store.write(key, stored)
        tokens[kind] = torch.tensor(stored)
    return tokens


def continue_rows(model: Any, contender: Contender, rows: Tensor) -> Tensor:
    """Continuations [b, tokens] of prompts [b, t]."""
    with choose_layer(model, contender)():
        return generate(model, rows, contender.beams, contender.tokens)


def choose_layer(model: Any, contender: Contender) -> Callable[[], Any]:
    """What opens the model with the contender's output layer."""
    head, k = contender.head, Cell(1, 1, contender.beams).classes
    if head is None:
        return leave_as_it_is
    return lambda: replace_by_head(model, head, k, exact=contender.exact, promise=contender.promise)


def list_differences(model: Any, prompts: Prompts, own: Prompts, other: Prompts, beams: int) -> list[Difference]:
    """Every continuation of `other` that is not the model's own, with its margin by the model's own logits."""
    return [
        measure_difference(model, kind, index, prompts[kind][index], (own[kind][index], other[kind][index]), beams)
        for kind in prompts
        for index in (own[kind] != other[kind]).any(dim=1).nonzero()[:, 0].tolist()
    ]


def measure_difference(
    model: Any, kind: str, index: int, prompt: Tensor, continuations: Sequence[Tensor], beams: int
) -> Difference:
    """The difference of a prompt's two continuations, the model's own first."""
    scores = torch.stack([score_tokens(model, prompt, tokens) for tokens in continuations])
    place = int((continuations[0] != continuations[1]).nonzero()[0, 0])
    parts = scores[:, place] if beams == STRAIGHT_BEAM else scores.sum(dim=1)
    return Difference(kind=kind, prompt=index, place=place, margin=round(float(parts[0] - parts[1]), 6))


def score_tokens(model: Any, prompt: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability [t] float64 of each of the tokens [t] after the prompt, by the model's own layer."""
    with torch.inference_mode():
        logits = model(torch.cat([prompt, tokens])[None], logits_to_keep=len(tokens) + 1).logits[0, :-1]
    scores: Tensor = logits.double().log_softmax(dim=1).gather(1, tokens[:, None])[:, 0]
    return scores


def count_same(prompts: Prompts, own: Prompts, other: Prompts) -> float:
    """The share of continuations that are the model's own, token by token."""
    same = [(own[kind] == other[kind]).all(dim=1) for kind in prompts]
    return float(torch.cat(same).double().mean())
