"""wrk: a closed loop over keep-alive connections, from one core."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist.errors import BadInput, ServerError

from .requests import Question

SCRIPT = Path(__file__).with_name("wrk.lua")
ERRORS = ("connect", "read", "write", "timeout", "status")
PATIENCE = 10  # seconds that wrk waits for an answer


@dataclass(frozen=True)
class Load:
    """What one run of wrk saw. rps: requests a second. p50, p99, p999: latency in us."""

    rps: float
    p50: float
    p99: float
    p999: float


def check_installed() -> None:
    """Raise BadInput where wrk is missing."""
    if shutil.which("wrk") is None:
        raise BadInput("wrk is not installed: run `apt-get install wrk` (Debian package wrk)")


def load(url: str, questions: Sequence[Question], connections: int, seconds: float, core: int) -> Load:
    """Post `questions`, which share path and headers, in turn for `seconds`; raises ServerError at any failure."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"H:{name}={value}" for name, value in questions[0].headers.items()]
        for number, question in enumerate(questions):
            path = Path(folder, str(number))
            path.write_bytes(question.body)
            arguments.append(f"B:{path}")
        command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
        command += ["--timeout", f"{PATIENCE}s", "-s", str(SCRIPT), url + questions[0].path, "--", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"wrk failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return parse(done.stdout)


def parse(output: str) -> Load:
    """The figures of wrk's last line; raises ServerError where there are none or a request failed."""
    last = output.strip().rpartition("\n")[2]
    try:
        found: dict[str, int] = json.loads(last)
        failed = {name: found[name] for name in ERRORS if found[name]}
        seconds = found["duration_us"] / 1e6
        load = Load(found["requests"] / seconds, found["p50"], found["p99"], found["p999"])
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise ServerError(f"wrk ended with '{last[:80]}' instead of figures: run it by hand to see why") from None
    if failed:
        counts = ", ".join(f"{count} {name}" for name, count in failed.items())
        raise ServerError(f"{counts} errors among {found['requests']} requests: figures of failures are worth nothing")
    if not found["requests"]:
        raise ServerError("not one request was answered: give it more seconds")
    return load


def median(loads: Sequence[Load]) -> Load:
    """The median of every figure over rounds."""
    fields = zip(*((each.rps, each.p50, each.p99, each.p999) for each in loads), strict=True)
    return Load(*(statistics.median(values) for values in fields))
