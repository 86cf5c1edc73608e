"""Asking chosen rows again, in a thread, for a share of the processor, while nobody else waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shortlist.core.arrays import Array
from shortlist.errors import BadInput, NotReady, Overloaded
from shortlist.evaluation.answers import AnswerFigures, judge_answers
from shortlist.evaluation.evaluator import Evaluation, evaluate
from shortlist.evaluation.sequential import HOLD_ROWS
from shortlist.head import Head
from shortlist.runtime.threads import count_available_threads
from shortlist.server.models import Model
from shortlist.server.settings import Settings

from .budget import CpuBudget
from .kept_contexts import ContextFolder
from .model_precision import ModelPrecision
from .sampler import DEPTHS, Sample

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.25  # that rows wait for others: eight asked together take a fifth of the time of eight alone
WRITE_SECONDS = 60.0  # between writes of the contexts that are kept
YIELD_SECONDS = 0.005  # between looks whether requests wait
CLOSE_SECONDS = 2.0  # for what is measured when the server stops, before contexts are written
MAX_EVALUATIONS = 4  # asked by clients, that run or wait
MAX_YIELD_SECONDS = 1.0  # after which it is the rows' turn nevertheless: under full load precision matters, too


class Monitor:
    """Asks the chosen rows of all model versions again.

    list_precisions: of the versions that are served. is_busy: whether requests wait. react: called with a version whose
    alarm was raised, and why. change_answers: called with a version that gives exact answers from now on, or no longer.
    """

    def __init__(
        self,
        settings: Settings,
        list_precisions: Callable[[], Iterable[ModelPrecision]],
        is_busy: Callable[[], bool],
        react: Callable[[ModelPrecision, str], Awaitable[None]],
        change_answers: Callable[[Model], None],
    ) -> None:
        self.settings, self.list_precisions, self.is_busy = settings, list_precisions, is_busy
        self.react, self.change_answers = react, change_answers
        self.budget = CpuBudget(settings.precision_cpu, count_available_threads())
        self.thread = ThreadPoolExecutor(1, "precision")
        self.evaluation_thread = ThreadPoolExecutor(1, "evaluation")  # of its own: served rows do not wait for it
        self.wake = asyncio.Event()
        self.turns = self.evaluations = 0
        self.folder = open_folder(settings)
        self.is_closed = False
        self.write_time = time.monotonic()

    def watch(self, model: Model) -> ModelPrecision | None:
        """What a version's requests offer their rows to; None where none are to be asked again."""
        if not self.settings.precision_share:
            return None
        period = max(1, round(1 / self.settings.precision_share))
        return ModelPrecision(
            model, period, self.wake.set, remedy=self.settings.precision_exact, raises=self.settings.precision_raise
        )

    async def run(self) -> None:
        """Ask again in an endless loop."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), WRITE_SECONDS)
            self.wake.clear()
            await asyncio.sleep(GATHER_SECONDS)
            try:
                await self.write_kept()
                await self.measure_all()
            except Exception:  # not foreseen; the next rows may fare better
                log.exception("rows could not be asked again")

    async def measure_all(self) -> None:
        """Ask again all rows that wait, as the budget allows."""
        await self.wait_for_turn()
        while await self.measure_next():
            await self.wait_for_turn()

    async def write_kept(self) -> None:
        """Write the contexts that are kept, now and then."""
        if self.folder is not None and time.monotonic() - self.write_time > WRITE_SECONDS:
            self.write_time = time.monotonic()
            await asyncio.get_running_loop().run_in_executor(self.thread, self.folder.write)

    async def wait_for_turn(self) -> None:
        """Wait until the budget allows for more, and requests do not wait; but not for ever."""
        while seconds := self.budget.count_wait():
            await asyncio.sleep(seconds)
        end = time.monotonic() + MAX_YIELD_SECONDS
        while self.is_busy() and time.monotonic() < end:
            await asyncio.sleep(YIELD_SECONDS)

    async def measure_next(self) -> bool:
        """Ask some rows again, of the version whose turn was longest ago; returns whether there were any."""
        waiting = [precision for precision in self.list_precisions() if precision.sampler.waiting]
        if not waiting:
            return False
        precision = min(waiting, key=lambda each: each.turn)
        self.turns += 1
        precision.turn = self.turns
        samples = precision.take_together()
        loop = asyncio.get_running_loop()
        figures, seconds = await loop.run_in_executor(self.thread, measure_samples, samples)
        self.budget.spend(seconds)
        if self.folder is not None:
            await loop.run_in_executor(self.thread, keep_samples, self.folder, precision.model, samples)
        await self.act(precision, precision.add(samples, figures))
        return True

    async def evaluate(self, head: Head, contexts: Array, receive: Receive) -> Evaluation:
        """The figures of `head` on contexts [n, d], one evaluation after the other, for a client that waits for them.

        receive: of its request, whose body is read. Raises BadInput, Overloaded, and ClientDisconnect where it left.
        """
        if self.evaluations >= MAX_EVALUATIONS:
            raise Overloaded(f"{self.evaluations} evaluations run or wait: ask again in 5 s", retry_after=5)
        self.evaluations += 1
        disconnect = asyncio.ensure_future(receive())  # after the body, all that can come is that the client leaves
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.evaluation_thread, self.evaluate_rows, disconnect, head, contexts)
        finally:
            disconnect.cancel()
            self.evaluations -= 1

    def evaluate_rows(self, disconnect: asyncio.Future[Any], head: Head, contexts: Array) -> Evaluation:
        """`evaluate` in a thread; raises NotReady once the server stops, ClientDisconnect once `disconnect` is done."""

        def check(*rows: int) -> None:
            del rows
            self.check_open()
            if disconnect.done():
                raise ClientDisconnect

        check()
        return evaluate(head, contexts, progress=check)

    def check_open(self) -> None:
        """Raise NotReady where the server stops."""
        if self.is_closed:
            raise NotReady("the server stops, and measures nothing any more: ask another, or again later")

    async def act(self, precision: ModelPrecision, reason: str) -> None:
        """Do what the settings want done for alarms, and when an alarm is over. reason: what they say; empty: none."""
        if precision.update_remedy():
            self.change_answers(precision.model)
        begun, over = precision.note_alarms()
        if begun:
            log.error("%s: %s", precision.model, reason)
        for k in over:
            log.warning("%s: the alarm of P@%d is over: no other in %s rows", precision.model, k, f"{HOLD_ROWS:,}")
        if reason:
            await self.react(precision, reason)

    async def close(self) -> None:
        """Measure nothing more, and write what is kept, unless what is measured now takes too long."""
        self.is_closed = True
        self.evaluation_thread.shutdown(wait=False, cancel_futures=True)
        writing = None
        if self.folder is not None:
            writing = asyncio.get_running_loop().run_in_executor(self.thread, self.folder.write)
        self.thread.shutdown(wait=False)
        if writing is not None:
            try:
                await asyncio.wait_for(writing, CLOSE_SECONDS)
            except TimeoutError:
                log.warning("contexts of the last minute are not kept: the server had no time left to write them")


def open_folder(settings: Settings) -> ContextFolder | None:
    """The folder in which contexts are kept, which is made; None where none are. Raises BadInput."""
    folder = settings.keep_contexts
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"the folder of kept contexts {folder} cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"the folder of kept contexts {folder} cannot be written: give this user access to it")
    return ContextFolder(folder, settings.keep_rows, settings.keep_seconds, settings.processes)


def keep_samples(folder: ContextFolder, model: Model, samples: Sequence[Sample]) -> None:
    """Keep the contexts of samples of one version."""
    for sample in samples:
        folder.add(model, sample.contexts)


def measure_samples(samples: Sequence[Sample]) -> tuple[AnswerFigures | None, float]:
    """The figures of samples that go together, None where that failed, and the processor seconds that it took."""
    start, start_cpu = time.perf_counter(), time.process_time()
    try:
        figures = judge_samples(samples)
    except Exception:  # whatever it is, requests go on
        log.exception("rows could not be asked again")
        figures = None
    seconds = (time.perf_counter() - start) * samples[0].head.threads
    return figures, min(seconds, time.process_time() - start_cpu)  # requests went on meanwhile


def judge_samples(samples: Sequence[Sample]) -> AnswerFigures:
    """The figures of samples that go together; raises BadInput and BundleError as heads do."""
    first = samples[0]
    contexts = np.concatenate([sample.contexts for sample in samples])
    if first.ids is None:
        top = first.head.base.topk_by_plan(contexts, first.depth)
        ids, logprobs = top.ids, top.logprobs
    else:
        ids = np.concatenate([sample.ids for sample in samples if sample.ids is not None])
        logprobs = np.concatenate([sample.logprobs for sample in samples if sample.logprobs is not None])
    return judge_answers(first.head.base, contexts, ids, logprobs, [k for k in DEPTHS if k <= first.depth])
