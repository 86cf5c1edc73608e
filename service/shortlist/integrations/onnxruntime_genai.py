"""A head in the place of the output layer of a model of onnxruntime-genai.

The model's graph ends in hidden states, and in logits that cost no product: onnxruntime-genai runs no model without an
output of logits. They say how far behind its last position each position is, since texts of a batch may end in padding,
and the generator gives those of each text's last token. Before each token the head's logits take their place, by
`set_logits`; the search of the generator, greedy, sampled or with beams, goes on with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.core.checks import parse_whole_number
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput
from shortlist.head import Head

from .scores import RETURNED_CLASSES, ScoreMemory, find_padding, find_zero, share_rest

HIDDEN_STATES = "hidden_states"  # the output that `exclude_lm_head` of its model builder leaves


class HeadGenerator:
    """A generator of onnxruntime-genai whose every token is chosen by the head's logits."""

    def __init__(self, generator: Any, head: Head, *, k: int = RETURNED_CLASSES, exact: bool = False) -> None:
        """generator: `onnxruntime_genai.Generator`, which other calls, such as `append_tokens`, are made.

        k: how many classes have logits of their own; greedy search needs 1, beam search of n beams 2 n; all others
        share what is left. exact: ask for exact answers. Raises BadInput where the head cannot give them so.
        """
        self.generator, self.head, self.exact = generator, head, exact
        padded = find_padding(head, compute_any_logits(head))
        self.classes, self.memory = padded.size - int(padded.sum()), ScoreMemory(padded)
        self.k = head.check_k(min(parse_whole_number("k", k), self.classes))
        head.choose_plan(1, self.k, exact)  # raises where there are no exact answers

    def generate_next_token(self) -> None:
        """Let the generator take its next token, of every text and beam; raises BadInput where states do not fit."""
        states = self.read_states()
        top = self.head.topk(states, self.k, exact=self.exact)
        known, rest = share_rest(top, self.classes)
        zero = find_zero(self.head, states, top, known)
        scores = self.memory.write(top.ids, known + zero, rest + zero)
        self.generator.set_logits(scores[:, None])
        self.generator.generate_next_token()

    def read_states(self) -> FloatArray:
        """The hidden states [n, d] float32 of each text's last token; raises BadInput where they do not fit."""
        if self.generator.token_count() == 0:
            raise BadInput("the generator has no tokens to go on from: call its append_tokens first")
        logits = self.generator.get_logits()  # runs the model over tokens that it has not read
        states = self.get_states()
        given, manifest = (logits.shape[2], states.shape[2]), self.head.manifest
        if given != (manifest.classes, manifest.dim):
            raise BadInput(
                f"the model has {given[0]} classes and hidden states of {given[1]} numbers but {manifest.name} was "
                f"exported from [{manifest.classes}, {manifest.dim}]: export a head of this model"
            )
        first, last = logits[:, -1, 0], logits[:, -1, -1]
        if (first != last).any() or (first > 0).any():
            raise BadInput("the model computes logits of its own: make it without its output layer, by examples/genai")
        contexts: FloatArray = states[np.arange(len(states)), first.astype(np.int64) - 1].astype(np.float32, copy=False)
        return contexts

    def get_states(self) -> FloatArray:
        """The hidden states [n, T, d] of the model's last run; raises BadInput where the graph has none."""
        try:
            states: FloatArray = self.generator.get_output(HIDDEN_STATES)
        except RuntimeError as error:
            raise BadInput(
                f"the model gives no {HIDDEN_STATES} ({error}): make it without its output layer, by examples/genai"
            ) from error
        return states


def compute_any_logits(head: Head) -> FloatArray:
    """The logits [V] of one context."""
    context, ids = np.zeros((1, head.manifest.dim), np.float32), np.arange(head.manifest.classes)[None]
    logits: FloatArray = head.compute_logits(head.plan, context, ids)[0]
    return logits
