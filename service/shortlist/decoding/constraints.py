"""What may follow a row, by what it holds so far: as lists and biases of a beam step, made on the caller's side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shortlist.core.bias import parse_key, parse_weights
from shortlist.core.filters import check_list_rows
from shortlist.core.results import NO_CLASS, FloatArray, IdArray
from shortlist.errors import BadInput

Tokens = Sequence[int]


def find_repeats(tokens: Tokens, size: int) -> set[int]:
    """The ids that would repeat an n-gram of `size` tokens if they followed `tokens`."""
    if size < 1 or len(tokens) < size:
        return set()
    end = tuple(tokens[len(tokens) - size + 1 :])
    starts = range(len(tokens) - size + 1)
    return {tokens[start + size - 1] for start in starts if tuple(tokens[start : start + size - 1]) == end}


def find_suppressed(tokens: Tokens, sequences: Iterable[Tokens]) -> set[int]:
    """The ids that would complete one of the suppressed `sequences` if they followed `tokens`."""
    suppressed = set()
    for sequence in sequences:
        before = len(sequence) - 1
        if before <= len(tokens) and list(tokens[len(tokens) - before :]) == list(sequence[:-1]):
            suppressed.add(sequence[-1])
    return suppressed


def list_seen_ids(rows: Sequence[Tokens]) -> IdArray:
    """The distinct ids of each row's tokens [R, m], padded with -1."""
    distinct_ids = [sorted(set(tokens)) for tokens in rows]
    ids = np.full((len(rows), max(map(len, distinct_ids), default=0)), NO_CLASS)
    for row, distinct in enumerate(distinct_ids):
        ids[row, : len(distinct)] = distinct
    return ids


def weigh_seen_ids(ids: IdArray, logprobs: FloatArray, penalty: float) -> list[dict[int, float]]:
    """The biases that multiply the log-probability of each seen id by `penalty`.

    That is Hugging Face's repetition penalty of log-probabilities, which are never over 0. ids, logprobs: [R, m].
    """
    return [
        {
            id: (penalty - 1) * logprob
            for id, logprob in zip(row_ids, row_logprobs, strict=True)
            if id != NO_CLASS and logprob > -np.inf
        }
        for row_ids, row_logprobs in zip(ids.tolist(), logprobs.astype(np.float64).tolist(), strict=True)
    ]


def list_biases(bias: Any, rows: int) -> Sequence[Mapping[int, float]]:
    """A bias of all rows, or of each, as one map a row; raises BadInput."""
    maps = [bias] if isinstance(bias, Mapping) else bias
    if not isinstance(maps, list | tuple) or not all(isinstance(each, Mapping) for each in maps):
        raise BadInput("bias must map ids to weights, for all rows or one map a row, beside a repetition penalty")
    check_list_rows("bias", maps, rows)
    parsed = [dict(zip(map(parse_key, each), parse_weights([*each.values()]).tolist(), strict=True)) for each in maps]
    return parsed * rows if len(parsed) == 1 else parsed


def add_biases(rows: Sequence[Mapping[int, float]], more: Sequence[Mapping[int, float]]) -> list[dict[int, float]]:
    """The sums of two biases, each one map a row."""
    return [
        {id: first.get(id, 0.0) + second.get(id, 0.0) for id in first.keys() | second.keys()}
        for first, second in zip(rows, more, strict=True)
    ]
