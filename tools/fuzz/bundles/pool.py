"""Processes that may die: numbers are handed to them one by one, and a death is the outcome of its number."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

MAX_TRIAL_SECONDS = 120.0  # of one number
MAX_WORKER_BYTES = 12 << 30  # of address space: a number that asks for more memory than there is fails

Work = Callable[[int], str]
MakeWork = Callable[[], Work]  # runs once in every process


class Outcome(NamedTuple):
    """What became of a number. failed: it raised, died or hung; `text` then says how."""

    index: int
    text: str
    failed: bool


@dataclass
class Worker:
    """A process, our end of its pipe, and the number that it is at since when."""

    process: BaseProcess
    pipe: Connection
    index: int | None = None
    since: float = 0.0

    def send(self, index: int) -> None:
        self.index, self.since = index, time.monotonic()
        self.pipe.send(index)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def serve_numbers(make_work: MakeWork, pipe: Connection) -> None:
    """A worker's life."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_WORKER_BYTES, MAX_WORKER_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work = make_work()
    while True:
        try:
            index = pipe.recv()
        except EOFError:
            return
        try:
            outcome = Outcome(index, work(index), failed=False)
        except BaseException as error:
            outcome = Outcome(index, describe(error), failed=True)
        pipe.send(outcome)


def describe(error: BaseException) -> str:
    """The error and where it was raised, on one line."""
    places, traceback = [], error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({' < '.join(reversed(places[-4:]))})"


def run_numbers(make_work: MakeWork, numbers: Iterator[int], workers: int) -> Iterator[Outcome]:
    """Outcomes of all numbers, as they come. A worker that dies or hangs is replaced."""
    crew: list[Worker] = []
    try:
        for number in islice(numbers, workers):
            crew.append(start_worker(make_work, number))
        while crew:
            for worker in find_ready(crew):
                outcome, alive = take_outcome(worker)
                yield outcome
                number = next(numbers, None)
                if alive and number is not None:
                    worker.send(number)
                    continue
                worker.end()
                crew.remove(worker)
                if number is not None:
                    crew.append(start_worker(make_work, number))
    finally:
        for worker in crew:
            worker.end()


def start_worker(make_work: MakeWork, number: int) -> Worker:
    """Start a process, and send it its first number."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_numbers, args=(make_work, theirs), daemon=True)
    process.start()
    theirs.close()
    worker = Worker(process, ours)
    worker.send(number)
    return worker


def find_ready(crew: list[Worker]) -> list[Worker]:
    """Workers that have an outcome, died, or take too long."""
    ready = wait([worker.pipe for worker in crew], timeout=1.0)
    late = time.monotonic() - MAX_TRIAL_SECONDS
    return [worker for worker in crew if worker.pipe in ready or worker.since < late]


def take_outcome(worker: Worker) -> tuple[Outcome, bool]:
    """The outcome of a ready worker's number, and whether the worker can go on."""
    assert worker.index is not None
    if not worker.pipe.poll():
        return Outcome(worker.index, f"took over {MAX_TRIAL_SECONDS:.0f} s", failed=True), False
    try:
        return worker.pipe.recv(), True
    except (EOFError, OSError):
        worker.process.join(10)
        return Outcome(worker.index, f"the process died with exit code {worker.process.exitcode}", failed=True), False
