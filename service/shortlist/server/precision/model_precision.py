"""Served precision of one model version: its sampler, its record, and what is done while its alarm stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from shortlist.evaluation.answers import AnswerFigures
from shortlist.head import Head
from shortlist.server.models import Model

from .raised_promise import RaisedPromise, read_head_promise
from .record import PrecisionRecord
from .sampler import Sample, Sampler

log = logging.getLogger(__name__)

MAX_TOGETHER_ROWS = 8  # of several requests: more would keep the processor from requests for too long at a time


class ModelPrecision:
    """What is asked again of a model version, and what came of it. All state belongs to the event loop.

    record: of the head in use; None until a row of it was asked again. remedy: whether exact answers are given while
    the alarm stands. raises: whether the promise is raised for alarms; raised: by which rule, of the head in use. turn:
    when it was its turn last, by the monitor's count. standing: the k whose alarm stands, as the log knows it.
    """

    def __init__(self, model: Model, period: int, wake: Callable[[], None], *, remedy: bool, raises: bool) -> None:
        self.model, self.remedy, self.raises, self.turn = model, remedy, raises, 0
        self.sampler = Sampler(period, wake)
        self.head: Head | None = None
        self.record: PrecisionRecord | None = None
        self.raised: RaisedPromise | None = None
        self.standing: set[int] = set()

    @property
    def gives_exact(self) -> bool:
        """Whether requests get exact answers in the place of the plan's, since the alarm stands."""
        return self.sampler.exact

    @property
    def share(self) -> float:
        """The share of rows that were asked again, of those that could have been."""
        return self.sampler.outcomes["measured"] / max(1, self.sampler.rows)

    @property
    def promise_in_force(self) -> float | None:
        """The promise that requests are answered by now; None where the head has none."""
        return read_head_promise(self.model.head_in_use)

    def forget_head(self) -> None:
        """Begin anew: the head is no longer in use, or another one is."""
        self.sampler.withdraw()
        self.sampler.exact, self.head, self.record, self.raised = False, None, None, None
        self.standing = set()

    def take_together(self) -> list[Sample]:
        """The samples that have waited longest, and go into one call: of one head, one depth and one kind of answer."""
        first = self.sampler.take_next()
        samples, rows = [first], len(first.contexts)
        while self.sampler.waiting:
            other = self.sampler.waiting[0]
            rows += len(other.contexts)
            alike = (
                other.head is first.head and other.depth == first.depth and (other.ids is None) == (first.ids is None)
            )
            if not alike or rows > MAX_TOGETHER_ROWS:
                break
            samples.append(self.sampler.take_next())
        return samples

    def add(self, samples: Sequence[Sample], figures: AnswerFigures | None) -> str:
        """Count rows that were asked again, or where that failed; returns what alarms they raise, empty for none."""
        head, rows = samples[0].head, sum(len(sample.contexts) for sample in samples)
        if head is not self.model.head_in_use or figures is None:
            self.sampler.outcomes["failed" if figures is None else "withdrawn"] += rows
            return ""
        if head is not self.head or self.record is None:
            self.head, self.record, self.standing = head, PrecisionRecord(head.manifest), set()
            self.raised = RaisedPromise(head) if self.raises and read_head_promise(head) is not None else None
        self.sampler.outcomes["measured"] += rows
        alarms = self.record.add(figures)
        reason = self.record.explain(alarms)  # now: another promise makes the figures begin anew
        if self.raised is not None:
            self.search_by(self.raised.observe(rows, alarm=bool(alarms)))
        return reason

    def search_by(self, head: Head | None) -> None:
        """Answer requests by the same head with another promise from now on; None changes nothing."""
        if head is None or self.record is None or not self.model.adjust(self.head, head):
            return
        self.head = head
        self.record.restart()
        self.sampler.withdraw()
        log.warning("%s: the promise %.5f is in force", self.model, read_head_promise(head))

    def update_remedy(self) -> bool:
        """Give exact answers from now on, or no longer, as the alarm says; returns whether that is a change."""
        exact = self.remedy and self.record is not None and self.record.alarm
        if exact is self.sampler.exact:
            return False
        self.sampler.exact = exact
        return True

    def note_alarms(self) -> tuple[set[int], set[int]]:
        """The k whose alarm has come to stand since the last call, and those whose alarm is over since then."""
        former = self.standing
        depths = {} if self.record is None else self.record.depths
        self.standing = {k for k, depth in depths.items() if depth.alarm}
        return self.standing - former, former - self.standing

    def describe(self) -> dict[str, Any] | None:
        """As `/v1/models` shows it; None until a row was asked again."""
        if self.record is None:
            return None
        return self.record.describe() | {
            "share": self.share,
            "exact_answers": self.gives_exact,
            "promise_in_force": self.promise_in_force,
        }
