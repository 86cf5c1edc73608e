"""What a load costs, in a process of its own.

That process runs `python -m shortlist_exporter.report.measure.loading FOLDER DEVICE THREADS`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from pydantic import ValidationError
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head
from shortlist.runtime.devices import import_onnxruntime

from shortlist_exporter.records.report import Loading

SMAPS_FILE = Path("/proc/self/smaps_rollup")
MAX_LOAD_SECONDS = 120


def measure_in_process(folder: Path, device: str, threads: int) -> Loading | None:
    """Measure a load; None where a process cannot be started or does not end well."""
    command = [sys.executable, "-m", __name__, str(folder), device, str(threads)]
    try:
        process = subprocess.run(command, capture_output=True, timeout=MAX_LOAD_SECONDS, check=True)
        return Loading.model_validate_json(process.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError):
        return None


def read_memory() -> tuple[int, int] | None:
    """Private and file-backed bytes of this process that are in memory; None where the system does not say."""
    try:
        lines = [line.split() for line in SMAPS_FILE.read_text().splitlines()[1:]]
    except OSError:
        return None
    kib = {words[0]: int(words[1]) for words in lines}
    return kib["Private_Dirty:"] * 1024, (kib["Rss:"] - kib["Anonymous:"]) * 1024


def measure_loading(folder: Path, device: str, threads: int) -> Loading:
    """Load the bundle as a server does, hashes and canary included."""
    import_onnxruntime()  # importing the runtime is no part of a load
    before, start = read_memory(), time.perf_counter()
    bundle = Bundle(folder)
    head = Head(bundle, device, threads)
    check_canary(head, bundle)
    seconds, after = time.perf_counter() - start, read_memory()
    gain = (None, None) if before is None or after is None else (after[0] - before[0], after[1] - before[1])
    return Loading(seconds=seconds, private=gain[0], mapped=gain[1])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure_loading(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).model_dump()))
