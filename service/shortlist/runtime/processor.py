"""Which processor this is: measured times belong to it."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def read_processor_name() -> str:
    """The processor's name and its number of cores; what `platform` says where Linux does not name it."""
    lines = CPU_INFO.read_text("utf-8").splitlines() if CPU_INFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()
