"""Tokens a second inside `generate`: the model's own output layer, a head, and a constant, in turns.

A constant costs no product: what is then left, body and search, is the most that any head could reach.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from shortlist.head import Head
from shortlist.integrations.transformers import attach, detach

UNTOUCHED, OURS, CEILING = "untouched", "shortlist", "constant"
THREADS, BATCHES, BEAMS = (1, 2), (1, 4), (1, 4)
NEW_TOKENS, PROMPT_TOKENS = 12, 8
ROUNDS = 5
STRAIGHT_BEAM = 1  # greedy search
CLASSES_A_BEAM = 2  # that beam search takes

Tensor = torch.Tensor
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """What is timed: a number of threads, of texts, and of beams, 1 for greedy search."""

    threads: int
    batch: int
    beams: int

    @property
    def classes(self) -> int:
        """How many classes the search needs, k."""
        return 1 if self.beams == STRAIGHT_BEAM else CLASSES_A_BEAM * self.beams

    @property
    def label(self) -> str:
        """In a line of a table."""
        search = "greedy" if self.beams == STRAIGHT_BEAM else f"beam {self.beams}"
        return f"{self.threads} thread{'s' * (self.threads > 1)}, batch {self.batch}, {search}"


@dataclass(frozen=True)
class Pace:
    """Tokens a second by contender, medians; medians of a round's ratios: ours over untouched's, and the constant's."""

    tokens: Mapping[str, float]
    ratio: float
    ceiling_share: float


class ConstantLayer(torch.nn.Module):
    """An output layer that multiplies nothing: the same logits for every hidden state."""

    def __init__(self, weight: Tensor) -> None:
        """weight: [V, d], of the layer in whose place it stands; models look at its dtype."""
        super().__init__()
        self.weight_of_layer = [weight]  # in a list it is no parameter of this module
        self.logits = torch.randn(len(weight), generator=torch.Generator().manual_seed(0))

    @property
    def weight(self) -> Tensor:
        """[V, d]."""
        return self.weight_of_layer[0]

    def forward(self, states: Tensor) -> Tensor:
        """Hidden states [B, T, d] -> logits [B, T, V]."""
        return self.logits.expand(*states.shape[:-1], -1)


@contextmanager
def replace_by_constant(model: Any) -> Iterator[None]:
    """The model with a constant for its output layer, while the context is open."""
    layer = model.get_output_embeddings()
    model.set_output_embeddings(ConstantLayer(layer.weight))
    try:
        yield
    finally:
        model.set_output_embeddings(layer)


@contextmanager
def replace_by_head(model: Any, head: Head, k: int, **options: Any) -> Iterator[None]:
    """The model with a head in it, while the context is open."""
    attach(model, head, k=k, **options)
    try:
        yield
    finally:
        detach(model)


@contextmanager
def leave_as_it_is() -> Iterator[None]:
    """The model itself."""
    yield


@contextmanager
def limit_torch(threads: int) -> Iterator[None]:
    """Let torch have so many threads, while the context is open."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def list_cells(threads: Iterable[int] = THREADS) -> list[Cell]:
    """Every combination of `threads`, batch and beams."""
    return [Cell(*one) for one in product(threads, BATCHES, BEAMS)]


def generate(model: Any, prompts: Tensor, beams: int, new_tokens: int) -> Tensor:
    """Exactly `new_tokens` tokens [B, new_tokens] after prompts [B, t] of one length, without sampling."""
    options = {"num_beams": beams, "do_sample": False, "eos_token_id": None, "max_new_tokens": new_tokens}
    tokens: Tensor = model.generate(prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0, **options)
    return tokens[:, prompts.shape[1] :]


def mix_kinds(prompts: Mapping[str, Tensor]) -> Tensor:
    """Prompts [n, PROMPT_TOKENS], the beginnings of those of each kind [m, t], the kinds in turn.

    They are text: of rows that no text leads to, such as after random tokens, a head of a promise searches further.
    """
    return torch.stack(list(prompts.values()), dim=1).flatten(0, 1)[:, :PROMPT_TOKENS]


def time_cell(model: Any, head: Head, cell: Cell, prompts: Tensor, rounds: int = ROUNDS) -> Pace:
    """Time the contenders in turn, so that what slows the machine down meets all of them alike.

    prompts: [n, t]; each round takes the next ones, and begins again at their end.
    """
    batches = torch.split(prompts, cell.batch)[: len(prompts) // cell.batch]
    contenders: dict[str, Callable[[], AbstractContextManager[None]]] = {
        UNTOUCHED: leave_as_it_is,
        CEILING: lambda: replace_by_constant(model),
        OURS: lambda: replace_by_head(model, head, cell.classes),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with limit_torch(cell.threads):
        for turn in range(rounds):
            for name, replace in contenders.items():
                with replace():
                    seconds[name].append(time_generation(model, batches[turn % len(batches)], cell.beams))
    return compute_pace({name: np.array(values) for name, values in seconds.items()}, cell.batch * NEW_TOKENS)


def time_generation(model: Any, prompts: Tensor, beams: int) -> float:
    """Seconds of `NEW_TOKENS` tokens after the prompts, when a few were generated before."""
    generate(model, prompts, beams, 2)
    start = time.perf_counter()
    generate(model, prompts, beams, NEW_TOKENS)
    return time.perf_counter() - start


def compute_pace(seconds: Mapping[str, Seconds], tokens: int) -> Pace:
    """Seconds of every round by contender -> tokens a second and ratios."""
    medians = {name: tokens / float(np.median(values)) for name, values in seconds.items()}
    ratio, share = (float(np.median(seconds[name] / seconds[OURS])) for name in (UNTOUCHED, CEILING))
    return Pace(medians, ratio, share)
