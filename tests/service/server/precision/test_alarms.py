"""What the log says of alarms: that they stand, once, and that they are over."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
from shortlist.evaluation.answers import AnswerFigures
from shortlist.evaluation.sequential import HOLD_ROWS
from shortlist.server.models import Model
from shortlist.server.precision.model_precision import ModelPrecision
from shortlist.server.precision.monitor import Monitor
from shortlist.server.precision.sampler import Sample
from shortlist.server.settings import Settings

from tests.support.heads import grouped

pytestmark = pytest.mark.slow

ROWS = grouped.promise_contexts.contexts[:500]


class Watched:
    """A model version whose rows are asked again, with figures that a test makes up. reasons: of each reaction."""

    def __init__(self, folder):
        self.model = Model("lm", 1, folder)
        self.model.load("cpu", 1)
        self.precision = ModelPrecision(self.model, 1, lambda: None, remedy=False, raises=False)
        self.reasons = []
        settings = Settings(repository=folder.parents[1], precision_share=1)
        self.monitor = Monitor(settings, list, bool, self.react, print)

    async def react(self, _, reason):
        self.reasons.append(reason)

    def count(self, first, fifth, portions=1):
        hits = {1: np.full(len(ROWS), first), 5: np.full(len(ROWS), fifth)}
        figures = AnswerFigures(hits, {k: 1 - each for k, each in hits.items()}, np.zeros(500), np.zeros(500))
        sample = Sample(self.model.head_in_use, ROWS, 5, None, None)
        for _ in range(portions):
            asyncio.run(self.monitor.act(self.precision, self.precision.add([sample], figures)))


def test_an_alarm_that_stands_is_told_once_and_so_is_its_end(promise_head, caplog):
    """A head far under its promise raised one every few rows, each of which was a line."""
    watched = Watched(promise_head.folder)
    with caplog.at_level(logging.WARNING):
        watched.count(1.0, 0.5, portions=4)
        assert [record.getMessage() for record in caplog.records] == [
            "model 'lm' version 1: P@5 is 0.5000 on live rows, 0.9900 promised"
        ]
        assert len(watched.reasons) == 4, "what may be done is done for each"
        watched.count(0.5, 1.0)
        assert "P@1 is 0.9000 on live rows" in caplog.records[1].getMessage(), "the alarm of another k"
        watched.count(1.0, 1.0, portions=HOLD_ROWS // len(ROWS) + 1)
        ends = [record.getMessage() for record in caplog.records[2:]]
        assert sorted(ends) == [
            f"model 'lm' version 1: the alarm of P@{k} is over: no other in 10,000 rows" for k in (1, 5)
        ]
        watched.count(1.0, 0.0)
        assert "P@5 is" in caplog.records[-1].getMessage(), "it may come again"
    assert len(caplog.records) == 5


def test_a_head_that_takes_the_place_of_another_begins_without_an_alarm(promise_head, caplog):
    watched = Watched(promise_head.folder)
    with caplog.at_level(logging.WARNING):
        watched.count(0.5, 0.5)
        assert len(caplog.records) == 1
        watched.precision.forget_head()
        watched.count(1.0, 1.0)
        assert len(caplog.records) == 1, "no end of an alarm that another head had"
        watched.count(0.5, 0.5)
    assert len(caplog.records) == 2
