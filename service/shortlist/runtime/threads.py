"""How many threads this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from shortlist.core.checks import parse_whole_number
from shortlist.errors import BadInput

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def read_cgroup_quota(v2: Path = CGROUP_V2, v1: Path = CGROUP_V1) -> float | None:
    """Read how many CPUs the control group grants, None where it sets no limit."""
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
    """Return how many CPUs this process may use: its affinity mask, at most the control group's quota rounded up."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = read_cgroup_quota()
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def choose_threads(threads: Any) -> int:
    """Return `threads`, by default as many as this process may use; raises BadInput unless it is 1 or more."""
    if threads is None:
        return count_available_threads()
    threads = parse_whole_number("threads", threads)
    if threads < 1:
        raise BadInput(f"threads is {threads}: give 1 or more")
    return int(threads)
