"""A question's way: the body reads the text, the service answers, the dense layer is asked beside it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from shortlist.core.results import FloatArray
from shortlist.core.units import MICROSECONDS_PER_SECOND
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.server.engine.service import Service
from shortlist.server.models import Model

from .answers import make_rows
from .body import Body
from .compare import Comparison, Query
from .heads import find_labels, find_texts
from .schemas import Answer, Question, Times
from .words import Words


class Reading(NamedTuple):
    """A question that was read: the version and the head that are asked, what they are asked, and how long it took.

    body_us: microseconds that the body read the text; None where vectors were pasted.
    """

    model: Model
    head: Head
    query: Query
    body_us: float | None


class Session:
    """The body, or None, and the words of the heads' classes. It keeps nothing of what is asked."""

    def __init__(self, body: Body | None) -> None:
        self.body = body
        self.words = Words()

    def read(self, service: Service, question: Question) -> Reading:
        """Find the version, and make the contexts and lists that its head is asked about; raises ShortlistError."""
        model = service.models.find(question.model, question.version)
        head, start = model.head, time.perf_counter()
        contexts = self.find_contexts(head, question)
        body_us = (time.perf_counter() - start) * MICROSECONDS_PER_SECOND if question.contexts is None else None
        labels = find_labels(head, self.body)
        allow, ban = (self.words.find_ids(head, labels, names) for names in (question.allow, question.ban))
        k = min(question.k, head.manifest.max_k)
        return Reading(model, head, Query(contexts, k, allow, ban, question.exact), body_us)

    def find_contexts(self, head: Head, question: Question) -> FloatArray:
        """Contexts [B, d]: those that are pasted, or that of the text; raises BadInput."""
        if question.contexts is not None:
            return head.check_contexts(parse_rows(question.contexts))
        if self.body is None or not self.body.has_head(head):
            raise BadInput(f"{head.manifest.name} has no model here that reads text: paste vectors")
        return self.body.read(question.text or "", question.words)

    def answer(self, reading: Reading, answer: dict[str, Any], comparison: Comparison) -> Answer:
        """What the page shows. answer: of the service, to the query of the reading."""
        head = reading.head
        return Answer(
            model=reading.model.name,
            version=reading.model.version,
            classes=head.manifest.classes,
            rows=make_rows(answer, comparison.dense, find_texts(head, self.body)),
            times=Times(head=comparison.head_us, dense=comparison.dense_us, body=reading.body_us),
            normalizer=answer["normalizer"],
            promise=answer.get("promise"),
            ends=[] if self.body is None else self.body.ends,
        )


def parse_rows(rows: list[list[float]]) -> FloatArray:
    """Rows of numbers [B, d] float32; raises BadInput where they differ in length."""
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise BadInput(f"the vectors have {min(lengths)} to {max(lengths)} numbers: give all of them the same length")
    return np.array(rows, np.float32)
