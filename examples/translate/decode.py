"""The decoder of a translator as `shortlist.beam_search` wants it: token by token, with a cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .corpus import pad_rows
from .model import Transformer, make_positions

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """What the rows of the call before have seen, R rows.

    mask: [R, 1, 1, s], where their sources have words. memory: keys and values [R, h, s, d / h] of each layer. past:
    the same of the t words so far. length: t.
    """

    mask: Tensor
    memory: list[tuple[Tensor, Tensor]]
    past: list[tuple[Tensor, Tensor]]
    length: int


class Decoder:
    """`step` for beam search. A state never changes, so that a search may go on from it more than once."""

    def __init__(self, model: Transformer) -> None:
        self.model = model.eval()

    @torch.inference_mode()
    def start(self, sources: list[list[int]]) -> State:
        """The state of sources, each with its end: one row a sentence."""
        ids, mask = pad_rows(sources)
        states, layers = self.model.encode(ids, mask), range(1, self.model.shape.layers + 1)
        memory = [self.model.project(f"decoder_l{layer}_context", states) for layer in layers]
        shape = self.model.shape
        nothing = torch.empty(len(sources), shape.heads, 0, shape.dim // shape.heads)
        return State(mask[:, None, None], memory, [(nothing, nothing) for _ in layers], 0)

    @torch.inference_mode()
    def step(self, state: State, tokens: Ids, parents: Ids) -> tuple[npt.NDArray[np.float32], State]:
        """Contexts [R, d] behind `tokens` [R], which follow the rows `parents`; the first ones stand for the start."""
        model, rows = self.model, torch.from_numpy(np.asarray(parents))
        if state.length == 0:
            states = make_positions(1, model.shape.dim).expand(len(tokens), 1, -1)
        else:
            states = model.embed("decoder_Wemb", torch.from_numpy(np.asarray(tokens))[:, None], state.length)
        mask, past, memory = state.mask[rows], [], []
        for layer in range(1, model.shape.layers + 1):
            block = f"decoder_l{layer}_self"
            new = model.project(block, states)
            pair = tuple(torch.cat([old[rows], more], 2) for old, more in zip(state.past[layer - 1], new, strict=True))
            past.append((pair[0], pair[1]))
            states = model.add_attention(block, states, *past[-1], None)
            seen = state.memory[layer - 1]
            memory.append((seen[0][rows], seen[1][rows]))
            states = model.add_attention(f"decoder_l{layer}_context", states, *memory[-1], mask)
            states = model.add_feed_forward(f"decoder_l{layer}_ffn", states)
        return states[:, 0].numpy(), State(mask, memory, past, state.length + 1)
