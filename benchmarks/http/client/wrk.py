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

from .requests import Request

SCRIPT_PATH = Path(__file__).with_name("wrk.lua")
ERROR_KINDS = ("connect", "read", "write", "timeout", "status")
WRK_TIMEOUT_SECONDS = 10  # that wrk waits for a response


@dataclass(frozen=True)
class Load:
    """Figures of one run of wrk. rps: requests a second. p50, p99, p999: latency in us."""

    rps: float
    p50: float
    p99: float
    p999: float


def require_wrk() -> None:
    """Raise BadInput where wrk is missing."""
    if shutil.which("wrk") is None:
        raise BadInput("wrk is not installed: run `apt-get install wrk` (Debian package wrk)")


def run_wrk(url: str, requests: Sequence[Request], connections: int, seconds: float, core: int | str) -> Load:
    """Post `requests`, which share path and headers, in turn for `seconds`; raises ServerError at any failure.

    core: on which wrk runs, or a list of some with commas.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"H:{name}={value}" for name, value in requests[0].headers.items()]
        for number, request in enumerate(requests):
            path = Path(folder, str(number))
            path.write_bytes(request.body)
            arguments.append(f"B:{path}")
        command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
        command += [
            "--timeout",
            f"{WRK_TIMEOUT_SECONDS}s",
            "-s",
            str(SCRIPT_PATH),
            url + requests[0].path,
            "--",
            *arguments,
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ServerError(f"wrk failed: {(process.stderr or process.stdout).strip().splitlines()[-1:]}")
    return parse_output(process.stdout)


def parse_output(output: str) -> Load:
    """The figures of wrk's last line; raises ServerError where there are none or a request failed."""
    last = output.strip().rpartition("\n")[2]
    try:
        figures: dict[str, int] = json.loads(last)
        errors = {name: figures[name] for name in ERROR_KINDS if figures[name]}
        seconds = figures["duration_us"] / 1e6
        load = Load(figures["requests"] / seconds, figures["p50"], figures["p99"], figures["p999"])
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise ServerError(f"wrk ended with '{last[:80]}' instead of figures: run it by hand to see why") from None
    if errors:
        counts = ", ".join(f"{count} {name}" for name, count in errors.items())
        raise ServerError(
            f"{counts} errors among {figures['requests']} requests: figures of failures are worth nothing"
        )
    if not figures["requests"]:
        raise ServerError("not one request was answered: give it more seconds")
    return load


def median_load(loads: Sequence[Load]) -> Load:
    """The median of every figure over rounds."""
    fields = zip(*((each.rps, each.p50, each.p99, each.p999) for each in loads), strict=True)
    return Load(*(statistics.median(values) for values in fields))
