"""Training steps and answers of mixtures beside softmax."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, time_calls
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.mixtures.mos import MixtureOfSoftmaxes
from shortlist_models.progress import Progress
from torch import Tensor, nn

from benchmarks.papers.common.wall_times import TIMED_K, WallTime, draw_rows, make_head_call, summarize_times

from .heads import Softmax

STEP_DIM, STEP_BATCH = 200, 256
VOCABULARIES = (10_000, 50_000)
STEP_ROUNDS = 5  # of all but the slowest contender, in turn
SLOW_ROUNDS = 1
WALL_TIME_ROWS, PRECISION_ROWS = 1500, 20_000
SOFTMAX = "softmax"
DENSE = "dense"
EXACT, PROVED, SEARCHED = "exact", "exact, proved", "searched"


@dataclass(frozen=True)
class Step:
    """The least seconds of a training step: forward, loss and backward, without the optimiser."""

    classes: int
    name: str
    seconds: float


def measure_steps(report: Progress) -> list[Step]:
    """Time softmax, Mixtape and MoS with K = 15 on random contexts and targets, at every V."""
    steps = []
    for number, classes in enumerate(VOCABULARIES):
        report("training steps", number, len(VOCABULARIES))
        steps += time_vocabulary(classes)
    return steps


def time_vocabulary(classes: int) -> list[Step]:
    """The steps of one V, in turn; the slow baseline after the others."""
    heads = {SOFTMAX: Softmax(STEP_DIM, classes), "Mixtape, K = 4": Mixtape(STEP_DIM, classes)}
    seconds = time_steps(heads, classes, STEP_ROUNDS)
    seconds |= time_steps({"MoS, K = 15": MixtureOfSoftmaxes(STEP_DIM, classes, 15)}, classes, SLOW_ROUNDS)
    return [Step(classes, name, one) for name, one in seconds.items()]


def time_steps(heads: Mapping[str, nn.Module], classes: int, rounds: int) -> dict[str, float]:
    """The least seconds of a step of each head, by name; a first round is left out."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn((rounds + 1) * STEP_BATCH, STEP_DIM, generator=generator).numpy()
    targets = torch.randint(classes, (STEP_BATCH,), generator=generator)
    calls = {name: make_step_call(head, targets) for name, head in heads.items()}
    times = time_calls(calls, contexts, STEP_BATCH, block=1)
    return {name: float(one.seconds[1:].min()) for name, one in times.items()}


def make_step_call(head: nn.Module, targets: Tensor) -> Call:
    """A call that runs a step forward and backward; it has no ids."""

    def run_step(rows: FloatArray) -> IdArray:
        head(torch.from_numpy(rows).requires_grad_(), targets).backward()
        return np.empty((0, 0), np.int64)

    return run_step


def format_steps(steps: list[Step]) -> str:
    """A table with a line for each step."""
    lines = ["| V | output layer | ms | over softmax | under MoS |\n|---|---|---|---|---|\n"]
    for one in steps:
        same = {other.name: other.seconds for other in steps if other.classes == one.classes}
        slowest = max(same.values())
        lines.append(
            f"| {one.classes:,} | {one.name} | {one.seconds * 1e3:.0f} | {one.seconds / same[SOFTMAX]:.2f} "
            f"| {slowest / one.seconds:.1f} |\n"
        )
    return "".join(lines)


@dataclass(frozen=True)
class Served:
    """A served Mixtape beside the dense layer: times of its ways to answer, and P@1 and P@5 of them by their names."""

    name: str
    precision: dict[str, tuple[float, float]]
    walls: list[WallTime]


def export_heads(name: str, dense: Dense, fit: Contexts, module: Mixtape, cache: Path) -> tuple[Head, Head]:
    """The Mixtape and the dense layer as heads, exported where they are not in the cache."""
    heads: list[Head] = []
    requests = {
        "mixtape": Request("mixtape", head=module, threads=1, report=False),
        "full": Request("full", threads=1, report=False),
    }
    for method, request in requests.items():
        out = cache / f"mixture-bundle-{FORMAT_VERSION}-{name}-{method}" / "1"
        if not out.is_dir():
            export(dense, fit, out, request)
        heads.append(Head(Bundle(out, verify=False), "cpu", 1))
    return heads[0], heads[1]


def measure_served(name: str, head: Head, dense: Head, contexts: FloatArray) -> Served:
    """Precision against the answers by all components, and times at batch 1 of `Head.topk`, in turn with dense."""
    calls = list_ways(head)
    rows = draw_rows(contexts, PRECISION_ROWS)
    due = calls[EXACT](rows)
    precision = {way: measure_precision(call(rows), due) for way, call in calls.items() if way != EXACT}
    times = time_calls({DENSE: make_head_call(dense)} | calls, rows[:WALL_TIME_ROWS], 1)
    return Served(name, precision, summarize_times(times, DENSE))


def list_ways(head: Head) -> dict[str, Call]:
    """The ways to answer: by all components, by proofs where the bundle has bounds, by search."""
    whole = copy(head)
    whole.certified = None
    ways: dict[str, Call] = {EXACT: make_exact_call(whole)}
    if head.certified is not None:
        ways[PROVED] = make_exact_call(head)
    return ways | {SEARCHED: make_head_call(head)}


def make_exact_call(head: Head) -> Call:
    """`Head.topk` with `exact` as a timed call."""
    return lambda rows: head.topk(rows, TIMED_K, exact=True).ids


def measure_precision(ids: IdArray, due: IdArray) -> tuple[float, float]:
    """P@1 and P@5 of `ids` [n, k] against those `due` [n, k]."""
    shared = [len(set(one) & set(other)) for one, other in zip(due.tolist(), ids.tolist(), strict=True)]
    return float((ids[:, 0] == due[:, 0]).mean()), float(np.mean(shared)) / TIMED_K


def format_served(served: list[Served]) -> str:
    """A table with a line for each way to answer of each head."""
    lines = ["| head | answers | P@1 | P@5 | us, mean | us, median | over dense |\n|---|---|---|---|---|---|---|\n"]
    for one in served:
        for wall in one.walls:
            precision = [f"{share:.4f}" for share in one.precision.get(wall.name, ())] or ["", ""]
            figures = [f"{wall.mean:.0f}", f"{wall.median:.0f}", f"{1 / wall.speedup:.2f}"]
            lines.append(f"| {' | '.join([one.name, wall.name, *precision, *figures])} |\n")
    return "".join(lines)
