"""What a beam search is asked for, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from shortlist.core.checks import parse_whole_number, show
from shortlist.core.results import IdArray
from shortlist.errors import BadInput

from .arguments import parse_count, parse_ids, parse_number, parse_sequences
from .finish import Finish, NoneBetter

# sentences [R], and the tokens of each row behind its start [R, t] -> lists for those rows, as a beam step takes them
ChooseLists = Callable[[IdArray, IdArray], Any]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of `beam_search`.

    beam: beams of each sentence; 1 is greedy. n_best: hypotheses wanted of each. eos: ids that end a sequence.
    max_length, min_length: most tokens behind the prefix, an end counted, and fewest, without it. finish: the rule by
    which a sentence's search ends and its hypotheses are compared. prefixes: tokens that each sentence begins with;
    they count in no score. allow, ban: ids for all rows, or what gives lists for some rows. bias: weights by id for all
    rows, or what gives one map a row. no_repeat_ngram: no so many tokens occur twice in a row; 0 for any.
    repetition_penalty: that log-probabilities of ids that a row holds are multiplied by. suppressed: sequences that no
    row may hold. temperature, exact: as in a beam step.
    """

    beam: int = 5
    n_best: int = 1
    eos: Sequence[int] = ()
    max_length: int = 256
    min_length: int = 0
    finish: Finish = field(default_factory=NoneBetter)
    prefixes: list[list[int]] | None = None
    allow: Any = None
    ban: Any = None
    bias: Mapping[int, float] | ChooseLists | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    suppressed: Sequence[Sequence[int]] = ()
    temperature: float = 1.0
    exact: bool = False

    @property
    def may_raise_totals(self) -> bool:
        """Whether a step may add more than 0 to a total."""
        falling = isinstance(self.bias, Mapping) and all(weight <= 0 for weight in self.bias.values())
        return (self.bias is not None and not falling) or self.repetition_penalty < 1

    def check(self, sentences: int) -> None:
        """Raise BadInput for what makes no search of so many sentences."""
        parse_count("beam", self.beam)
        parse_count("max_length", self.max_length)
        if not 1 <= parse_whole_number("n_best", self.n_best) <= self.beam:
            raise BadInput(f"n_best is {self.n_best} but {self.beam} beams give 1 to {self.beam}: raise beam")
        if parse_whole_number("min_length", self.min_length) > self.max_length:
            raise BadInput(f"min_length is {self.min_length}, over max_length, which is {self.max_length}")
        if parse_whole_number("no_repeat_ngram", self.no_repeat_ngram) < 0:
            raise BadInput(f"no_repeat_ngram is {self.no_repeat_ngram}: give 0, or a number of tokens")
        if not 0 < self.repetition_penalty < float("inf"):
            raise BadInput(f"repetition_penalty is {self.repetition_penalty}: give a number over 0; 1 changes nothing")
        if any(len(sequence) == 0 for sequence in self.suppressed):
            raise BadInput("suppressed holds a sequence without tokens: leave it out")
        if self.prefixes is not None and len(self.prefixes) != sentences:
            raise BadInput(
                f"prefixes are {len(self.prefixes)} for {sentences} sentences: give one each, empty for none"
            )


def make_options(values: Mapping[str, Any]) -> SearchOptions:
    """The options of these names and values; raises BadInput where there is no such option."""
    known = [each.name for each in fields(SearchOptions)]
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        raise BadInput(f"beam_search has no option '{unknown}': known are {', '.join(known)}")
    parsers = {name: PARSERS[name] for name in values if name in PARSERS}
    return SearchOptions(**{**values, **{name: parse(name, values[name]) for name, parse in parsers.items()}})


def parse_prefixes(what: str, prefixes: Any) -> list[list[int]] | None:
    """The prefixes of all sentences, None where there are none; raises BadInput."""
    return None if prefixes is None else parse_sequences(what, prefixes)


def parse_finish(what: str, rule: Any) -> Finish:
    """The rule itself; raises BadInput at what is none, as the name of one."""
    if not hasattr(type(rule), "is_done"):
        raise BadInput(f"{what} is {show(rule)}: give a rule of shortlist.decoding.finish, as NoneBetter()")
    checked: Finish = rule
    return checked


PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "eos": lambda what, ids: parse_ids(what, ids).tolist(),
    "finish": parse_finish,
    "prefixes": parse_prefixes,
    "suppressed": parse_sequences,
    "repetition_penalty": parse_number,
    "temperature": parse_number,
}
