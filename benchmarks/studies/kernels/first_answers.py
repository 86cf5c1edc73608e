"""How long a new process takes to its first answer."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from .turns import Contender, WorkerFailed

FIRST_ANSWERS = 5
PROGRAM = """
import sys
import numpy as np
import shortlist
head = shortlist.load(sys.argv[1])
print(head.topk(np.load(sys.argv[2])[:1], 5).ids[0, 0], flush=True)
"""


def time_first_answer(contender: Contender, contexts: Path, cache: Path) -> float:
    """Seconds from the start of a Python until it has printed an answer: the median, after one that is not counted.

    Files are in the page cache. Modules are byte-compiled, as an install leaves them, into `cache`.
    """
    command = [contender.python, "-c", PROGRAM, str(contender.bundle), str(contexts)]
    variables = contender.list_variables() | {"PYTHONPYCACHEPREFIX": str(cache.absolute())}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    times = [time_process(command, variables) for _ in range(FIRST_ANSWERS + 1)]
    return statistics.median(times[1:])


def time_process(command: list[str], variables: dict[str, str]) -> float:
    """Seconds until the process has printed its line."""
    start = time.perf_counter()
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        is_answered = bool(process.stdout.readline())
        seconds = time.perf_counter() - start
    if not is_answered:
        raise WorkerFailed("a process that loads a head has ended without an answer")
    return seconds
