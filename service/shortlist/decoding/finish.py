"""When a sentence's search ends, and how finished hypotheses are compared: three rules, by name.

A hypothesis has a total, the sum of the log-probabilities of its tokens with all biases. Rules divide it by a power of
its length, the length penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shortlist.core.checks import show
from shortlist.errors import BadInput

from .arguments import parse_number

MAX_LENGTH_PENALTY = 10  # of any length that a search may have, this power is a float


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the search for one sentence stands after a step.

    finished: scores of the hypotheses that are finished, best first. best: total of the best beam that goes on, -inf
    where none does. length, max_length: tokens behind the prefix, that beams have and may have. beam, wanted: beams,
    and hypotheses asked for. best_ended: whether the best continuation of some step ended its sequence. rises: whether
    a step may raise a total, by a bias.
    """

    finished: list[float]
    best: float
    length: int
    max_length: int
    beam: int
    wanted: int
    best_ended: bool
    rises: bool


def check_length_penalty(penalty: float) -> None:
    """Raise BadInput at what is no exponent of a length."""
    if not abs(parse_number("length_penalty", penalty)) <= MAX_LENGTH_PENALTY:
        raise BadInput(f"length_penalty is {penalty}: give a number from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}")


def divide_by_length(total: float, length: int, penalty: float) -> float:
    """`total` by length ** penalty."""
    return total / math.pow(length, penalty)


@dataclass(frozen=True, slots=True)
class LengthPenalty:
    """How every rule compares hypotheses; the length counts the end."""

    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_length_penalty(self.length_penalty)

    def score(self, total: float, tokens: int, *, ended: bool) -> float:
        """The score of a hypothesis of so many tokens, the end apart."""
        return divide_by_length(total, tokens + ended, self.length_penalty)


@dataclass(frozen=True, slots=True)
class NoneBetter(LengthPenalty):
    """Stop when no hypothesis that could still come would be among those asked for; the length counts the end."""

    def is_done(self, progress: Progress) -> bool:
        """Whether the search for the sentence is over."""
        if len(progress.finished) < progress.wanted or progress.rises:
            return False
        length = progress.max_length if self.length_penalty > 0 else progress.length + 1
        best_to_come = divide_by_length(progress.best, length, self.length_penalty)
        return progress.finished[progress.wanted - 1] >= best_to_come


@dataclass(frozen=True, slots=True)
class CTranslate2(LengthPenalty):
    """CTranslate2's rule. The length counts the end.

    The search ends with round(beam * patience) finished hypotheses; without a length penalty as soon as a best
    continuation has ended its sequence and as many hypotheses are finished as were asked for.
    """

    patience: float = 1.0

    def __post_init__(self) -> None:
        check_length_penalty(self.length_penalty)
        if not 0 < parse_number("patience", self.patience) < math.inf:
            raise BadInput(f"patience is {self.patience}: give a number over 0")

    def is_done(self, progress: Progress) -> bool:
        """Whether the search for the sentence is over."""
        if self.length_penalty == 0:
            return progress.best_ended and len(progress.finished) >= progress.wanted
        return len(progress.finished) >= math.floor(progress.beam * self.patience + 0.5)


@dataclass(frozen=True, slots=True)
class HuggingFace(LengthPenalty):
    """The rule of Hugging Face's `generate`. The length counts the end.

    early_stopping: True ends the search with `beam` finished hypotheses. False and "never" go on while the best beam
    could be better than the worst of the `beam` best hypotheses: by its length now, or at most.
    """

    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        check_length_penalty(self.length_penalty)
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise BadInput(f"early_stopping is {show(self.early_stopping)}: give True, False or 'never'")

    def is_done(self, progress: Progress) -> bool:
        """Whether the search for the sentence is over."""
        if len(progress.finished) < progress.beam:
            return False
        if self.early_stopping is True:
            return True
        longest = self.early_stopping == "never" and self.length_penalty > 0
        length = progress.max_length if longest else progress.length
        return progress.finished[progress.beam - 1] >= divide_by_length(progress.best, length, self.length_penalty)


Finish = NoneBetter | CTranslate2 | HuggingFace
