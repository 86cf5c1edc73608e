"""The last commit whose loops numba compiled: its sources, an environment of its own, and a bundle that it exported."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from shortlist.errors import ShortlistError

from .turns import Contender

NUMBA_COMMIT = "0f5f48fe9de2c3d48c0c1e91df9ce50ef0272d93"
MAX_REASON_CHARACTERS = 300


class OldLoopsMissing(ShortlistError):
    """That commit cannot be run here."""


def run_step(what: str, command: list[str], **variables: str) -> bytes:
    """Run a command of the set-up and return what it printed; raises OldLoopsMissing with its last words."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(command, capture_output=True, check=False, env=others | variables)
    if process.returncode:
        words = process.stderr.decode(errors="replace").strip()[-MAX_REASON_CHARACTERS:]
        raise OldLoopsMissing(f"{what} failed: {words}")
    return process.stdout


def check_out(folder: Path) -> Path:
    """The commit's sources below `folder`; raises OldLoopsMissing where this is no clone with its history."""
    sources = folder / NUMBA_COMMIT[:12]
    if not sources.is_dir():
        archive = run_step("git archive", ["git", "archive", "--format=tar", NUMBA_COMMIT])
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(sources.with_suffix(".new"), filter="data")
        sources.with_suffix(".new").rename(sources)
    return sources


def make_environment(sources: Path) -> Path:
    """The Python of a virtual environment that holds the commit's package, numba, and what both need."""
    folder = sources.with_suffix(".venv")
    python, stamp = folder / "bin" / "python", folder / "stamp"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        run_step("making a virtual environment", [sys.executable, "-m", "venv", str(folder)])
        constraints = str(sources / "constraints.txt")
        package = f"{sources}[cpu,kernels]"
        run_step("installing numba", [str(python), "-m", "pip", "install", "-q", "-c", constraints, package])
        stamp.touch()
    return python


def export_bundle(sources: Path, weights: Path, contexts: Path) -> Path:
    """The bundle of plan `grouped` that the commit's own exporter makes, in this process's environment."""
    out = sources.with_suffix(".repository") / "grouped" / "1"
    if not out.is_dir():
        command = [sys.executable, "-m", "shortlist", "export", "--method", "grouped", "--threads", "1", "--no-report"]
        command += ["--no-certificate", "--weights", str(weights), "--contexts", str(contexts), "--out", str(out)]
        path = os.pathsep.join(str(sources / part) for part in ("service", "exporter", "models"))
        run_step("exporting by the old commit", command, PYTHONPATH=path)
    return out


def make_contender(folder: Path, weights: Path, contexts: Path, settings: dict[str, int]) -> Contender:
    """The commit as a contender that searches by the given settings; raises OldLoopsMissing."""
    sources = check_out(folder.absolute())
    bundle = export_bundle(sources, weights.absolute(), contexts.absolute())
    return Contender(bundle, str(make_environment(sources)), package="", settings=settings)
