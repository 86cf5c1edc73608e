"""How many threads this process may use."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path, PurePosixPath
from typing import Any

from shortlist.core.checks import parse_whole_number
from shortlist.errors import BadInput

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")  # lines as 0::/system.slice/a.service (v2), 3:cpu,cpuacct:/a (v1)
V1_CONTROLLER = "cpu"


def require_main_thread() -> None:
    """Raise BadInput in another thread than the main one, in which alone signals can be handled."""
    if threading.current_thread() is not threading.main_thread():
        raise BadInput(
            "a server is ended by signals, so it runs in the main thread alone: start `shortlist serve` as a process, "
            "or take shortlist.load for answers in this one"
        )


def read_lowest_quota(mounts: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Read how many CPUs this process's control group and those around it grant, None where none sets a limit.

    In a container its group is the root of what it sees; a service of systemd, as by CPUQuota, is somewhere below.
    """
    groups = list_cgroups(own)
    quotas = [read_cgroup_quota(mounts / group / "cpu.max", mounts / V1_CONTROLLER / group) for group in groups]
    return min((quota for quota in quotas if quota is not None), default=None)


def list_cgroups(own: Path) -> set[str]:
    """The paths, without their first slash, of the control groups for CPUs that this process is in; "" is the root."""
    try:
        lines = [line.split(":", 2) for line in own.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        lines = []
    paths = [PurePosixPath(line[2].lstrip("/")) for line in lines if is_for_cpus(line)]
    return {"" if str(part) == "." else str(part) for path in paths for part in (path, *path.parents)} | {""}


def is_for_cpus(line: list[str]) -> bool:
    """Whether a line of a process's control groups is of the one hierarchy of v2, or of v1's for CPUs."""
    return len(line) == 3 and (line[1] == "" or V1_CONTROLLER in line[1].split(","))


def read_cgroup_quota(v2: Path, v1: Path) -> float | None:
    """Read how many CPUs one control group grants, None where it sets no limit.

    v2: its file. v1: its folder in the hierarchy for CPUs.
    """
    try:
        quota, period = v2.read_text().split()
    except (OSError, ValueError):
        try:
            quota = (v1 / "cpu.cfs_quota_us").read_text().strip()
            period = (v1 / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)


def count_available_threads() -> int:
    """Return how many CPUs this process may use: its affinity mask, at most its control groups' quota rounded up."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = read_lowest_quota()
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def choose_threads(threads: Any) -> int:
    """Return `threads`, by default as many as this process may use; raises BadInput unless it is 1 or more."""
    if threads is None:
        return count_available_threads()
    threads = parse_whole_number("threads", threads)
    if threads < 1:
        raise BadInput(f"threads is {threads}: give 1 or more")
    return int(threads)
