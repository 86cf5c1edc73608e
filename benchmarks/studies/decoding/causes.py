"""Why a head changes hypotheses: by the classes that it misses, or by its normaliser.

A search takes one of both from the head and the other from dense: what changes then, that one alone has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shortlist.core.queries import BeamStep
from shortlist.core.results import PlanResult
from shortlist.decoding.arguments import make_beam_query
from shortlist.decoding.step import BeamSearchRows, choose_rows, continue_beams
from shortlist.head import Head

from .searches import HeadClient, count_changed, translate
from .study import Study


class MixedClient(HeadClient):
    """Classes of one head, with their exact logits, beside the normaliser of another."""

    def __init__(self, classes: Head, normalizer: Head) -> None:
        super().__init__(classes)
        self.normalizer = normalizer

    def beam_step(self, model: str, contexts: Any, scores: Any, finished: Any = None, **options: Any) -> BeamStep:
        """A beam step of both."""
        del model
        options.pop("version", None)
        query = make_beam_query(contexts, scores, finished, **options)
        rows = choose_rows(self.head, query)
        other = run_rows(self.normalizer, choose_rows(self.normalizer, query))
        result = replace(run_rows(self.head, rows), log_normalizer=other.log_normalizer)
        return continue_beams(rows, result)


def run_rows(head: Head, rows: BeamSearchRows) -> PlanResult:
    """What a head finds for the rows of a step."""
    return head.run(rows.plan, rows.contexts, rows.k, rows.class_filter, rows.bias)


def count_causes(study: Study, head: Head, dense_tokens: list[list[int]], beam: int) -> dict[str, int]:
    """How many dev and test sentences the head's classes change alone, and how many its normaliser."""
    clients = {"classes": MixedClient(head, study.full), "normaliser": MixedClient(study.full, head)}
    return {
        cause: count_changed(dense_tokens, translate(study.decoder, client, study.sentences, beam).tokens)
        for cause, client in clients.items()
    }
