"""Hypotheses of one sentence, and the beams that go on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shortlist.core.queries import BeamStep
from shortlist.core.results import NO_CLASS

from .finish import Progress
from .options import SearchOptions


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A sequence that a search gives.

    tokens: behind the start, with the prefix, without the end. end: the id that ended it, None where the search was
    over before. score: what hypotheses are compared by. total: the sum of what the tokens behind the prefix, and the
    end, added to the score. logprobs: log-probabilities of those, without biases and temperature.
    """

    tokens: list[int]
    end: int | None
    score: float
    total: float
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence that goes on. row: of the last step, that it continues. total, logprobs: as in `Hypothesis`."""

    row: int
    tokens: list[int]
    total: float
    logprobs: list[float]


@dataclass(slots=True)
class Sentence:
    """The search for one sentence. number: its place in the request. prefix: tokens that it begins with.

    beams: those that go on, best first. hypotheses: those finished, best first.
    """

    number: int
    prefix: list[int]
    beams: list[Beam]
    hypotheses: list[Hypothesis] = field(default_factory=list)
    best_ended: bool = False

    @property
    def length(self) -> int:
        """Tokens of its beams, the prefix among them."""
        return len(self.beams[0].tokens)

    @property
    def in_prefix(self) -> bool:
        """Whether the next token is given."""
        return self.length < len(self.prefix)

    def follow_prefix(self, row: int) -> None:
        """Take the next token of the prefix, which costs nothing. row: of its one beam."""
        (beam,) = self.beams
        token = self.prefix[len(beam.tokens)]
        self.beams = [Beam(row, [*beam.tokens, token], beam.total, beam.logprobs)]

    def take_step(self, step: BeamStep, group: int, first_row: int, options: SearchOptions) -> None:
        """Take the continuations of `group` of a step, whose beams are the rows from `first_row` on.

        Of the best `beam`, those that end are finished; the best `beam` of those that do not end go on.
        """
        before, self.beams = self.beams, []
        last = len(before[0].tokens) + 1 - len(self.prefix) >= options.max_length
        columns = (step.parents[group], step.ids[group], step.scores[group], step.logprobs[group])
        for rank, (parent, id, total, logprob) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
            if parent == NO_CLASS or len(self.beams) == options.beam:
                break
            origin = before[parent]
            logprobs, ended = [*origin.logprobs, logprob], id in options.eos
            if rank < options.beam and (ended or last):
                tokens = origin.tokens if ended else [*origin.tokens, id]
                self.best_ended |= rank == 0
                self.finish_hypothesis(tokens, id if ended else None, total, logprobs, options)
            if not ended and not last:
                self.beams.append(Beam(first_row + parent, [*origin.tokens, id], total, logprobs))

    def finish_hypothesis(
        self, tokens: list[int], end: int | None, total: float, logprobs: list[float], options: SearchOptions
    ) -> None:
        """Put a hypothesis among those finished; equal ones behind those that came before."""
        score = options.finish.score(total, len(tokens) - len(self.prefix), ended=end is not None)
        place = sum(other.score >= score for other in self.hypotheses)
        self.hypotheses.insert(place, Hypothesis(tokens, end, score, total, logprobs))

    def is_done(self, options: SearchOptions) -> bool:
        """Whether nothing more is to be searched."""
        if not self.beams:
            return True
        if self.length <= len(self.prefix):
            return False
        return options.finish.is_done(
            Progress(
                [each.score for each in self.hypotheses],
                self.beams[0].total,
                self.length - len(self.prefix),
                options.max_length,
                options.beam,
                options.n_best,
                self.best_ended,
                options.may_raise_totals,
            )
        )


def make_sentences(prefixes: list[list[int]], origins: npt.NDArray[np.int64]) -> list[Sentence]:
    """Sentences of which each begins with one beam, in row `origins`[i] of the caller's state."""
    return [
        Sentence(number, prefix, [Beam(int(origin), [], 0.0, [])])
        for number, (prefix, origin) in enumerate(zip(prefixes, origins, strict=True))
    ]
