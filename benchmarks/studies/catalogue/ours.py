"""Our head of a catalogue: exported and served by the commands that users type, with their time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import shortlist
from shortlist.bundle.manifest import Strict
from shortlist.errors import ShortlistError

from examples.demo import run_server

from .inputs import Catalogue

MODEL = "items"
RECORD = "export.json"
KIB_BYTES = 1024


class Export(Strict):
    """seconds: of the whole command. peak_bytes: of its memory. bundle_bytes: on disk."""

    seconds: float
    peak_bytes: int
    bundle_bytes: int


class Start(Strict):
    """load_seconds: until a head is open in this process. ready_seconds: from `shortlist serve` to /readyz."""

    load_seconds: float
    ready_seconds: float


def export_catalogue(catalogue: Catalogue, folder: Path) -> Export:
    """Export by `shortlist export` into `folder`/repository/items/1, by one thread; what is there stays."""
    record, out = folder / RECORD, folder / "repository" / MODEL / "1"
    if record.is_file() and out.is_dir():
        return Export.model_validate_json(record.read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "items.npy", catalogue.items)
    np.save(folder / "users.npy", catalogue.contexts)
    names = [f"item-{number:08d}" for number in range(len(catalogue.items))]
    (folder / "names.txt").write_text("\n".join(names) + "\n", "utf-8")
    start = time.monotonic()
    run_export(folder, out)
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KIB_BYTES
    size = sum(path.stat().st_size for path in out.rglob("*"))
    export = Export(seconds=seconds, peak_bytes=peak, bundle_bytes=size)
    record.write_text(export.model_dump_json(), "utf-8")
    return export


def run_export(folder: Path, out: Path) -> None:
    """Run the command; raises ShortlistError where it fails."""
    layer = ["--weights", folder / "items.npy", "--contexts", folder / "users.npy", "--names", folder / "names.txt"]
    how = ["--method", "grouped", "--no-report", "--threads", "1", "--at", "10,20,100", "--out", out]
    command = [sys.executable, "-m", "shortlist", "export", *map(str, layer), *map(str, how)]
    if subprocess.run(command, check=False).returncode:
        raise ShortlistError(f"the export of {folder} failed: see above")


def measure_start(repository: Path) -> Start:
    """How long a head takes to open, and a server to be ready, its files being in the page cache."""
    bundle = repository / MODEL / "1"
    shortlist.load(bundle, threads=1)  # reads the files
    start = time.monotonic()
    shortlist.load(bundle, threads=1)
    loaded = time.monotonic()
    with run_server(repository):
        ready = time.monotonic()
    return Start(load_seconds=loaded - start, ready_seconds=ready - loaded)
