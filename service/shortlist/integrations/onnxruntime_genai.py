"""A head in the place of the output layer of a model of onnxruntime-genai.

The model's graph ends in hidden states, and in logits of no meaning, which cost no product: onnxruntime-genai runs no
model without an output of logits. Before each token the head's log-probabilities take their place, by `set_logits`; the
search of the generator, greedy, sampled or with beams, goes on with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.core.results import FloatArray
from shortlist.errors import BadInput
from shortlist.head import Head

from .scores import RETURNED_CLASSES, ScoreMemory, find_padding, share_rest

HIDDEN_STATES = "hidden_states"  # the output that `exclude_lm_head` of its model builder leaves


class HeadGenerator:
    """A generator of onnxruntime-genai whose every token is chosen by the head's log-probabilities."""

    def __init__(self, generator: Any, head: Head, *, k: int = RETURNED_CLASSES, exact: bool = False) -> None:
        """generator: `onnxruntime_genai.Generator`, which other calls, such as `append_tokens`, are made.

        k: how many classes have log-probabilities of their own; greedy search needs 1, beam search of n beams 2 n; all
        others share what is left. exact: ask for exact answers. Raises BadInput where the head cannot give them so.
        """
        classes = head.manifest.classes
        self.generator, self.head, self.exact = generator, head, exact
        self.k = head.check_k(min(k, classes))
        head.choose_plan(1, self.k, exact)  # raises where there are no exact answers
        padded = find_padding(head, compute_any_logits(head))
        self.classes, self.memory = classes - int(padded.sum()), ScoreMemory(padded)

    def generate_next_token(self) -> None:
        """Let the generator take its next token, of every text and beam; raises BadInput where states do not fit."""
        self.generator.get_logits()  # runs the model over tokens that it has not read
        states: FloatArray = self.generator.get_output(HIDDEN_STATES)[:, -1]
        if states.shape[1] != self.head.manifest.dim:
            raise BadInput(
                f"the model's hidden states have {states.shape[1]} numbers but {self.head.manifest.name} was exported "
                f"for {self.head.manifest.dim}: export a head of this model"
            )
        top = self.head.topk(states.astype(np.float32, copy=False), self.k, exact=self.exact)
        scores = self.memory.write(top.ids, *share_rest(top, self.classes))
        self.generator.set_logits(scores[:, None])
        self.generator.generate_next_token()


def compute_any_logits(head: Head) -> FloatArray:
    """The logits [V] of one context."""
    context, ids = np.zeros((1, head.manifest.dim), np.float32), np.arange(head.manifest.classes)[None]
    logits: FloatArray = head.compute_logits(head.plan, context, ids)[0]
    return logits
