"""The body of a language model: text in, the context vector of its last token out; remembers what it read last."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from shortlist.core.extras import require
from shortlist.core.results import FloatArray, Labels, make_label_array
from shortlist.errors import BadInput, ShortlistError
from shortlist.head import Head
from shortlist.integrations.transformers import check_logits, check_sizes

from shortlist_exporter.capture.language_model import LanguageModel, catch_output_inputs

PROBE_TOKENS = 4  # read at the start, to see whether the model can go on from what it read
PROBE_TOLERANCE = 1e-3  # share of the largest number of a context by which the two ways may differ


class Body:
    """A language model up to its output layer, which is never multiplied. Threads take turns.

    tokens, memory: what was read last, and the model's keys and values of it; a text that begins alike is read from
    where it differs. goes_on: whether the model can.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.turn = threading.Lock()
        self.tokens: list[int] = []
        self.memory: Any = None
        self.fits: WeakKeyDictionary[Head, bool] = WeakKeyDictionary()
        self.goes_on = self.can_go_on()

    @property
    def name(self) -> str:
        """Of the model's file or folder."""
        return self.model.source.name

    @property
    def ends(self) -> list[int]:
        """The tokens that end a text."""
        return self.model.ends

    @cached_property
    def labels(self) -> Labels:
        """[V + 1] printable names of the tokens, the last one None."""
        return make_label_array(self.model.make_labels())

    def split(self, text: str) -> list[int]:
        """The tokens of a text, without those that a tokenizer adds at its ends."""
        return list(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])

    def read(self, text: str, words: list[int]) -> FloatArray:
        """The context vector [1, d] after a text and further tokens; raises BadInput where that is none or too long."""
        tokens = [*self.model.prefix, *self.split(text), *words]
        limit = self.model.max_window
        if not tokens:
            raise BadInput("there is no text: type a word first")
        if limit is not None and len(tokens) > limit:
            raise BadInput(f"the text has {len(tokens)} tokens but {self.name} reads {limit}: shorten it")
        wrong = next((token for token in tokens if not 0 <= token < self.model.dense.classes), None)
        if wrong is not None:
            raise BadInput(f"word {wrong} is no class: there are {self.model.dense.classes}")
        with self.turn:
            return self.read_on(tokens) if self.goes_on else self.read_anew(tokens)

    def read_anew(self, tokens: list[int]) -> FloatArray:
        """The context vector [1, d] after the tokens, all of them read."""
        states = catch_output_inputs(self.model.model, torch.tensor([tokens]))
        return np.ascontiguousarray(states[:, -1].numpy())

    def read_on(self, tokens: list[int]) -> FloatArray:
        """As `read_anew`, reading only those tokens that differ from what was read last, and always the last."""
        same = count_same(self.tokens, tokens[:-1])
        if self.memory is None or same == 0:
            self.memory, same = require("transformers", "capture").DynamicCache(), 0
        elif same < len(self.tokens):
            self.memory.crop(same - len(self.tokens))
        self.tokens = []  # until the rest is read
        states = catch_output_inputs(self.model.model, torch.tensor([tokens[same:]]), self.memory)
        self.tokens = tokens
        return np.ascontiguousarray(states[:, -1].numpy())

    def can_go_on(self) -> bool:
        """Whether reading on gives the contexts of reading anew, of a few tokens; some models have other memories."""
        tokens = list(range(min(PROBE_TOKENS, self.model.dense.classes)))
        try:
            self.read_on([*tokens, *tokens])
            context = self.read_on([*tokens, tokens[0]])
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
            return False
        wanted = self.read_anew([*tokens, tokens[0]])
        return bool(np.abs(context - wanted).max() <= PROBE_TOLERANCE * np.abs(wanted).max())

    def has_head(self, head: Head) -> bool:
        """Whether a head stands for this model's own output layer: by its sizes, and by logits of a few tokens."""
        if head not in self.fits:
            self.fits[head] = self.compare(head)
        return self.fits[head]

    def compare(self, head: Head) -> bool:
        """Whether the sizes and a few logits agree; `has_head` remembers it."""
        try:
            check_sizes(self.model.model, head)
            with self.turn:
                check_logits(self.model.model, head)
        except ShortlistError:
            return False
        return True


def count_same(one: list[int], other: list[int]) -> int:
    """How many numbers two lists have in common from their start."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
