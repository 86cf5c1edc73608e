"""What the page shows of the answers of both sides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from shortlist.core.results import Labels, TopK, read_labels

from .schemas import Candidate, Row, Side
from .words import shorten


def make_rows(answer: dict[str, Any], dense: TopK | None, labels: Labels | None) -> list[Row]:
    """A row for each context vector. answer: of /v1/topk, to a request that wants the risk, too."""
    return [make_row(answer, dense, labels, row) for row in range(len(answer["ids"]))]


def make_row(answer: dict[str, Any], dense: TopK | None, labels: Labels | None, row: int) -> Row:
    """Both sides of one context vector."""
    ids: list[int] = answer["ids"][row]
    others: list[int] = ids if dense is None else dense.ids[row].tolist()
    head = make_side(ids, answer["logprobs"][row], others, labels)
    head.scored, head.risk = answer["scored"][row], answer["risk"][row]
    if dense is None:
        return Row(head=head, dense=None, agrees=True)
    other = make_side(others, dense.logprobs[row].tolist(), ids, labels)
    other.scored = int(dense.scored[row])
    return Row(head=head, dense=other, agrees=ids[:1] == others[:1])


def make_side(ids: list[int], logprobs: list[float | None], others: list[int], labels: Labels | None) -> Side:
    """Candidates without the padding of short rows; each knows its place among `others`."""
    places = {number: place for place, number in enumerate(others, 1)}
    texts = [None] * len(ids) if labels is None else read_labels(labels, np.array(ids, np.int64)).tolist()
    candidates = [
        Candidate(
            id=number,
            label=shorten(text),
            probability=find_probability(logprob),
            place=places.get(number),
        )
        for number, text, logprob in zip(ids, texts, logprobs, strict=True)
        if number >= 0
    ]
    return Side(candidates=candidates, scored=0, risk=None)


def find_probability(logprob: float | None) -> float | None:
    """The probability of a log-probability; None where that is none."""
    return None if logprob is None or not np.isfinite(logprob) else math.exp(min(logprob, 0.0))
