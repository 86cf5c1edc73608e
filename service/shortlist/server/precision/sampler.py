"""Which live rows are asked again: a keyed hash of the row's number decides, nothing of the row itself."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shortlist.core.results import FloatArray, IdArray, PlanResult, TopK
from shortlist.head import Head
from shortlist.server.scheduling.slices import Task
from shortlist.server.scheduling.tasks import BeamResult

DEPTHS = (1, 5)  # the k whose precision is counted
MAX_WAITING_ROWS = 256  # of a model version, to be asked again
KEY_BYTES = 16

Outcome = Literal["measured", "queue_full", "failed", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows that are to be asked again.

    contexts: [b, d]. ids, logprobs: [b, depth], the answer of the head's plan; None where exact answers were given in
    its place, or items were changed since the export, so that the plan has to be asked, too.
    """

    head: Head
    contexts: FloatArray
    depth: int
    ids: IdArray | None
    logprobs: FloatArray | None


class Sampler:
    """Chooses rows of the requests to one model version, and keeps them until they are asked again.

    Every row gets a number, which is its id here: those that clients give to requests are often those of many. Of each
    `period` rows one is chosen, by SipHash of their place under a key of this sampler, so that nobody can choose to be
    chosen. All state belongs to the event loop. wake: called when rows wait. exact: are exact answers given in place
    of the plan's. rows: that could be chosen so far. outcomes: what became of the rows that were chosen.
    """

    def __init__(self, period: int, wake: Callable[[], None]) -> None:
        self.period, self.wake = period, wake
        self.key, self.places = secrets.token_bytes(KEY_BYTES), itertools.count()
        self.exact = False
        self.rows = 0
        self.next_row = self.choose_row()
        self.waiting: deque[Sample] = deque()
        self.waiting_rows = 0
        self.outcomes: Counter[Outcome] = Counter()

    def choose_row(self) -> int:
        """The number of the row that is chosen in the next period."""
        place = next(self.places)
        return place * self.period + hash(b"%b %d" % (self.key, place)) % self.period

    def offer(self, task: Task, result: object) -> None:
        """Take the rows of an answered request that are chosen, if any are; costs a tenth of a microsecond if none is.

        Requests for exact answers, or with lists or biases, are left out: nothing was promised of them.
        """
        if task.separate or (task.plan is task.head.plan) is self.exact:
            return
        first = self.rows
        self.rows += task.rows
        if self.next_row < self.rows:
            self.take(task, result, first)

    def take(self, task: Task, result: object, first: int) -> None:
        """Copy the chosen rows of a request whose first row has this number, or drop them where too many wait."""
        part: list[int] = []
        while self.next_row < self.rows:
            part.append(self.next_row - first)
            self.next_row = self.choose_row()
        head, contexts = task.head, task.contexts[part]
        if head.exact is None or head.exact is head.plan:
            return
        if self.waiting_rows + len(contexts) > MAX_WAITING_ROWS:
            self.outcomes["queue_full"] += len(contexts)
            return
        depth = max(k for k in DEPTHS if k <= max(task.k, 1))
        answer = (None, None) if self.exact or head.is_changed else copy_answer(result, part, depth)
        self.waiting.append(Sample(head, contexts, depth, *answer))
        self.waiting_rows += len(contexts)
        self.wake()

    def take_next(self) -> Sample:
        """The sample that has waited longest, which is no longer kept."""
        sample = self.waiting.popleft()
        self.waiting_rows -= len(sample.contexts)
        return sample

    def withdraw(self) -> None:
        """Drop all that waits: the head that answered is no longer in use."""
        self.outcomes["withdrawn"] += self.waiting_rows
        self.waiting.clear()
        self.waiting_rows = 0


def copy_answer(result: object, part: list[int], depth: int) -> tuple[IdArray, FloatArray]:
    """Ids and log-probabilities [b, depth] of some rows of a result."""
    top = result.rows if isinstance(result, BeamResult) else result
    if isinstance(top, PlanResult):
        top = top.topk("")
    assert isinstance(top, TopK)
    return top.ids[part, :depth], top.logprobs[part, :depth]
