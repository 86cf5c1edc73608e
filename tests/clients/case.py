"""Questions for foreign clients with the answers that the head gives offline, and the script that asks them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import shortlist
from shortlist.decoding.step import beam_step

from tests.conftest import require_or_skip
from tests.support.layers import DIM, RunningServer, make_contexts

ROOT = Path(__file__).parents[2]
ALLOW = [3, 7, 11, 19, 23]
SCORED = [0, 5, 299]


def python_of(name: str) -> Path:
    """The python of a client's own environment; skips where `make` has not made it."""
    python = ROOT / "build" / "venvs" / name / "bin" / "python"
    if not python.is_file():
        require_or_skip("clients", f"there is no {python.relative_to(ROOT)}: run `make clients`")
    return python


def write_case(folder: Path, repository: Path) -> Path:
    """Contexts and answers of model `lm`, in one file that needs numpy alone to be read."""
    head = shortlist.load(repository / "lm" / "1", threads=1)
    rows, wide = make_contexts(rows=4, seed=8).contexts, make_contexts(rows=64, seed=9).contexts
    brain = (rows.view(np.uint32) & 0xFFFF0000).view(np.float32)  # what bfloat16 holds without rounding
    best = head.topk(rows, 3).ids
    arrays = {
        "rows": rows,
        "wide": wide,
        "brain": brain,
        "allow": np.array([ALLOW]),
        "ban": best[:, :2],
        "given": np.array([SCORED] * 4),
    }
    answers = {
        "top3": head.topk(rows, 3),
        "top5": head.topk(rows, 5),
        "allowed": head.topk(rows, 3, allow=ALLOW),
        "unbanned": head.topk(rows, 3, ban=best[:, :2]),
        "exact": head.topk(rows, 3, exact=True),
        "half": head.topk(rows.astype(np.float16).astype(np.float32), 3),
        "brain": head.topk(brain, 3),
        "wide100": head.topk(wide, 100),
    }
    for name, result in answers.items():
        arrays |= {f"{name}_ids": result.ids, f"{name}_logprobs": result.logprobs, f"{name}_scored": result.scored}
    scores = np.array([-1.0, -np.inf, 0.0, -2.0])
    finished = np.array([False, False, False, True])
    step = beam_step(head, rows, scores, finished, beam=2, eos=[1, 2], bias={5: 2.0})
    arrays |= {"beam_scores_in": scores, "beam_finished": finished}
    arrays |= {f"beam_{name}": getattr(step, name) for name in ("parents", "ids", "scores", "logprobs")}
    path = folder / "case.npz"
    np.savez(path, given_logprobs=head.logprobs(rows, arrays["given"]), **arrays)
    assert rows.shape == (4, DIM)
    return path


def run_script(python: Path, script: str, server: RunningServer, case: Path, *arguments: str) -> dict[str, str]:
    """What the script prints: each check -> "ok" or what went wrong."""
    place = server.url.removeprefix("http://")
    command = [str(python), str(Path(__file__).parent / "methods" / script), place, str(case), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout.splitlines()[-1])


def failures(report: dict[str, str]) -> str:
    """One line for each check that did not pass."""
    return "\n".join(f"{check}: {result}" for check, result in report.items() if result != "ok")
