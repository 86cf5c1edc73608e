"""Beam search without a decoder or a head: a generator that asks for what it needs, so that both kinds of I/O share it.

It yields a `StepCall` for the caller's decoder, a `ContinueCall` or a `ScoreCall` for the head, is sent the answer,
and returns each sentence's hypotheses.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.bundle.names import has_names
from shortlist.core.arrays import Array, to_float_array
from shortlist.core.queries import BeamStep
from shortlist.core.results import DoubleArray, FloatArray, IdArray
from shortlist.core.row_lists import NamedLists, get_row_list
from shortlist.errors import BadInput

from .arguments import count_continuations, parse_ids, parse_lists
from .constraints import add_biases, find_repeats, find_suppressed, list_biases, list_seen_ids, weigh_seen_ids
from .hypotheses import Beam, Sentence, make_sentences
from .options import SearchOptions


@dataclass(frozen=True, slots=True)
class StepCall:
    """Asks for the contexts [R, d] behind `tokens` [R], which follow the rows `parents` [R] of the call before."""

    state: Any
    tokens: IdArray
    parents: IdArray


@dataclass(frozen=True, slots=True)
class ContinueCall:
    """Asks for a beam step."""

    contexts: Any
    scores: DoubleArray
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """Asks for the log-probabilities [R, m] of `ids` [R, m]."""

    contexts: Any
    ids: IdArray
    exact: bool


Calls = Generator[StepCall | ContinueCall | ScoreCall, Any, Any]


def search(state: Any, starts: Any, options: SearchOptions, origins: Any = None) -> Calls:
    """Search all sentences at once; returns a list of hypotheses for each, best first.

    starts: [S] ids that the sentences begin with. origins: [S] rows of `state`, by default 0 to S - 1.
    """
    first = parse_ids("starts", starts)
    options.check(first.size)
    rows = np.arange(first.size) if origins is None else parse_ids("origins", origins)
    if rows.size != first.size:
        raise BadInput(f"origins are {rows.size} for {first.size} sentences: give one each")
    sentences = make_sentences(options.prefixes or [[]] * first.size, rows)
    going, width = sentences, 1
    while going:
        beams = [beam for sentence in going for beam in pad_beams(sentence, width)]
        tokens = np.array([beam.tokens[-1] if beam.tokens else first[i // width] for i, beam in enumerate(beams)])
        answer = yield StepCall(state, tokens, np.array([beam.row for beam in beams]))
        contexts, state = read_answer(answer, len(beams))
        yield from advance(going, width, contexts, options)
        going = [sentence for sentence in going if not sentence.is_done(options)]
        width = max((len(sentence.beams) for sentence in going), default=1)
    return [sentence.hypotheses[: options.n_best] for sentence in sentences]


def pad_beams(sentence: Sentence, width: int) -> list[Beam]:
    """The sentence's beams, and the first one again in place of those that it lacks."""
    return [*sentence.beams, *[sentence.beams[0]] * (width - len(sentence.beams))]


def read_answer(answer: Any, rows: int) -> tuple[Array, Any]:
    """The contexts [rows, d] and the state that the decoder gave; raises BadInput unless there is one a token."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        given = type(answer).__name__
        hint = ", or await it by beam_search_async" if given == "coroutine" else ""
        raise BadInput(f"step gave no pair but {given}: return the contexts [R, d] and the next state{hint}")
    contexts, state = to_float_array("contexts", answer[0]), answer[1]
    if len(contexts) != rows:
        raise BadInput(f"step gave {len(contexts)} contexts for {rows} tokens: give one each, in their order")
    return contexts, state


def advance(going: list[Sentence], width: int, contexts: Any, options: SearchOptions) -> Calls:
    """Take one token in every sentence, whose beams are `width` rows of `contexts` each: of its prefix, or searched."""
    free = []
    for place, sentence in enumerate(going):
        if sentence.in_prefix:
            sentence.follow_prefix(place * width)
        else:
            free.append((place, sentence))
    if not free:
        return
    sentences = [sentence for _, sentence in free]
    if len(free) < len(going):
        contexts = contexts[np.concatenate([np.arange(place * width, (place + 1) * width) for place, _ in free])]
    scores = np.concatenate([list_totals(sentence, width) for sentence in sentences])
    step_options = yield from make_step_options(sentences, width, contexts, options)
    step: BeamStep = yield ContinueCall(contexts, scores, step_options)
    for group, (place, sentence) in enumerate(free):
        sentence.take_step(step, group, place * width, options)


def list_totals(sentence: Sentence, width: int) -> DoubleArray:
    """The totals of the sentence's beams [width], -inf for those that it lacks."""
    totals = np.full(width, -np.inf)
    totals[: len(sentence.beams)] = [beam.total for beam in sentence.beams]
    return totals


def make_step_options(sentences: list[Sentence], width: int, contexts: Any, options: SearchOptions) -> Calls:
    """The options of a beam step over these sentences; returns them."""
    rows = [beam.tokens for sentence in sentences for beam in pad_beams(sentence, width)]
    numbers = np.repeat([sentence.number for sentence in sentences], width)
    histories = pad_tokens(rows)
    # without ends no beam has to be replaced
    n = count_continuations(options.beam, len(options.eos)) if len(options.eos) else options.beam
    step: dict[str, Any] = {"beam": width, "n": n, "eos": options.eos, "exact": options.exact}
    if options.temperature != 1:
        step["temperature"] = options.temperature
    if options.min_length > 0 and len(options.eos):
        lengths = [sentence.length - len(sentence.prefix) for sentence in sentences]
        step |= {"min_length": options.min_length, "lengths": np.repeat(lengths, width)}
    allow = options.allow(numbers, histories) if callable(options.allow) else options.allow
    ban = choose_bans(rows, numbers, histories, options)
    bias = yield from choose_biases(rows, numbers, histories, contexts, options)
    return step | {name: lists for name, lists in (("allow", allow), ("ban", ban), ("bias", bias)) if lists is not None}


def pad_tokens(rows: Sequence[Sequence[int]]) -> IdArray:
    """The tokens of all rows as one array [R, t], those of shorter rows padded with -1."""
    tokens = np.full((len(rows), max(map(len, rows))), -1)
    for row, each in enumerate(rows):
        tokens[row, : len(each)] = each
    return tokens


def choose_bans(rows: list[list[int]], numbers: IdArray, histories: IdArray, options: SearchOptions) -> Any:
    """The ids that may not follow, for all rows or a list each; None where there are none."""
    ban = options.ban(numbers, histories) if callable(options.ban) else options.ban
    if not options.no_repeat_ngram and not options.suppressed:
        return ban
    if has_names(ban) or isinstance(ban, NamedLists):
        raise BadInput("ban must hold ids beside no_repeat_ngram and suppressed, which add ids to it: look them up")
    lists = parse_lists("ban", ban, len(rows))
    bans = [get_row_list(lists, row) for row in range(len(rows))]
    return [
        sorted(
            {*(() if more is None else more.tolist())}
            | find_repeats(tokens, options.no_repeat_ngram)
            | find_suppressed(tokens, options.suppressed)
        )
        for tokens, more in zip(rows, bans, strict=True)
    ]


def choose_biases(
    rows: list[list[int]], numbers: IdArray, histories: IdArray, contexts: Any, options: SearchOptions
) -> Calls:
    """The biases of all rows, or of each; None where there are none."""
    bias = options.bias(numbers, histories) if callable(options.bias) else options.bias
    if options.repetition_penalty == 1:
        return bias
    ids = list_seen_ids(rows)
    if not ids.size:
        return bias
    logprobs: FloatArray = yield ScoreCall(contexts, ids, options.exact)
    penalties = weigh_seen_ids(ids, logprobs, options.repetition_penalty)
    if bias is None:
        return penalties
    return add_biases(penalties, list_biases(bias, len(rows)))
