"""Servers on Ray: the interpreter that has it, what they need to find our packages, and their processes."""

from __future__ import annotations

import os
import sys
import time
import uuid
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import require_or_skip
from tests.support.layers import RunningServer

ROOT = Path(__file__).parents[3]
OWN = ROOT / "build" / "venvs" / "ray" / "bin" / "python"  # `make clients` makes it
QUIET = {"RAY_AUTH_MODE": "disabled"}
MARK = "SHORTLIST_TEST_MARK"


def find_python() -> str:
    """The interpreter that has Ray; skips the test where none has."""
    if find_spec("ray") is not None:
        return sys.executable
    if not OWN.exists():
        require_or_skip("ray", "Ray is not installed: `make clients` makes build/venvs/ray")
    return str(OWN)


class RayServer(RunningServer):
    """`shortlist serve --ray` with small replicas, on Ray of its own."""

    def __init__(self, repository: Path, *flags: str) -> None:
        self.mark = uuid.uuid4().hex
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)]), MARK: self.mark}
        small = ["--replica-cpus", "0.1", "--threads", "1"]
        super().__init__(repository, "--ray", *small, *flags, python=find_python(), variables=QUIET | paths)

    def find_replicas(self, deployment: str) -> list[int]:
        """The processes of a deployment's replicas, of this server alone."""
        title = f"ray::ServeReplica:shortlist:{deployment}"
        return [pid for pid in list_marked(self.mark) if read_proc(pid, "cmdline").startswith(title.encode())]

    def wait_for_replicas(self, deployment: str, count: int, seconds: float = 60) -> list[int]:
        """Wait until a deployment has so many."""
        end = time.monotonic() + seconds
        while len(pids := self.find_replicas(deployment)) != count:
            assert time.monotonic() < end, pids
            time.sleep(0.05)
        return pids


def list_marked(mark: str) -> list[int]:
    """The processes whose environment has a mark: those that a server started."""
    wanted = f"{MARK}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if wanted in read_proc(pid, "environ").split(b"\0")]


def read_proc(pid: int, name: str) -> bytes:
    """A file of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
