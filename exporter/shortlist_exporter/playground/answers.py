"""What the page shows of the answers of both sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from shortlist.core.results import IdArray, Labels, TopK

from .schemas import Candidate, Row, Side
from .words import shorten

ReadTexts = Callable[[IdArray], Labels]  # the labels or names of ids, None of -1


def make_rows(answer: dict[str, Any], dense: TopK | None, texts: ReadTexts | None) -> list[Row]:
    """A row for each context vector. answer: of /v1/topk, to a request that wants the risk, too."""
    return [make_row(answer, dense, texts, row) for row in range(len(answer["ids"]))]


def make_row(answer: dict[str, Any], dense: TopK | None, texts: ReadTexts | None, row: int) -> Row:
    """Both sides of one context vector."""
    ids: list[int] = answer["ids"][row]
    others: list[int] = ids if dense is None else dense.ids[row].tolist()
    head = make_side(ids, answer["logprobs"][row], others, texts)
    head.scored, head.risk = answer["scored"][row], answer["risk"][row]
    if dense is None:
        return Row(head=head, dense=None, agrees=True)
    other = make_side(others, dense.logprobs[row].tolist(), ids, texts)
    other.scored = int(dense.scored[row])
    return Row(head=head, dense=other, agrees=ids[:1] == others[:1])


def make_side(ids: list[int], logprobs: list[float | None], others: list[int], texts: ReadTexts | None) -> Side:
    """Candidates without the padding of short rows; each knows its place among `others`."""
    places = {number: place for place, number in enumerate(others, 1)}
    labels = [None] * len(ids) if texts is None else texts(np.array(ids, np.int64)).tolist()
    candidates = [
        Candidate(
            id=number,
            label=shorten(label),
            probability=find_probability(logprob),
            place=places.get(number),
        )
        for number, label, logprob in zip(ids, labels, logprobs, strict=True)
        if number >= 0
    ]
    return Side(candidates=candidates, scored=0, risk=None)


def find_probability(logprob: float | None) -> float | None:
    """The probability of a log-probability; None where that is none."""
    return None if logprob is None or not np.isfinite(logprob) else math.exp(min(logprob, 0.0))
