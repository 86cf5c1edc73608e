"""Many mutated bundles, in processes of their own: every one is refused in a sentence, or answers as it should."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shortlist.bundle.manifest import MANIFEST_FILE
from shortlist.kernels.native import library

from .mutations import make_draft
from .pool import Work, run_numbers
from .trial import try_bundle

MAX_FAILURES_SHOWN = 20
GRAPHS_EVERY = 5  # one bundle in so many is answered by graphs, as where the native library is missing


@dataclass
class Report:
    """Outcomes of some mutated bundles, and the failures among them."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def make_work(samples: list[Path], scratch: Path, seed: int, *, loops: bool = True) -> Work:
    """The work of one process, which has a folder of its own. loops: whether the library is there."""
    if not loops:
        library.open_target.cache_clear()
        library.load_library = lambda: None
    from tests.support.layers import make_contexts

    folder = Path(tempfile.mkdtemp(dir=scratch)) / "lm" / "1"

    def work(index: int) -> str:
        draft = make_draft(samples, seed, index)
        draft.write(folder)
        dim = json.loads((draft.source / MANIFEST_FILE).read_bytes())["dim"]
        return try_bundle(folder, make_contexts(40, dim, seed=5).contexts, distinct=draft.keeps_graphs)

    return work


def describe_failure(samples: list[Path], seed: int, index: int, text: str) -> str:
    """What was done to the bundle, what became of it, and how to do it again."""
    draft = make_draft(samples, seed, index)
    return f"{draft.source.parent.name}, {'; '.join(draft.notes)}: {text}; --seed {seed} --first {index}"


def run(count: int, seed: int = 0, first: int = 0, workers: int = 1, samples: list[Path] | None = None) -> Report:
    """Mutate, load and query `count` bundles in `workers` processes. samples: those that `write_samples` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        if samples is None:
            from .samples import write_samples

            samples = write_samples(Path(scratch) / "samples")
        report, started = Report(count), time.monotonic()
        for loops in (True, False):
            numbers = (index for index in range(first, first + count) if (index % GRAPHS_EVERY > 0) == loops)
            work = partial(make_work, samples, Path(scratch), seed, loops=loops)
            for index, text, failed in run_numbers(work, numbers, workers):
                report.outcomes["failures" if failed else text] += 1
                if failed:
                    report.failures.append(describe_failure(samples, seed, index, text))
        report.seconds = time.monotonic() - started
    return report


def show(report: Report) -> None:
    """Print the figures, then the failures."""
    print(f"bundles: {report.count} mutated and sealed again, in {report.seconds:.0f} s")
    print("  outcomes: " + ", ".join(f"{name} {count}" for name, count in report.outcomes.most_common()))
    for line in report.failures[:MAX_FAILURES_SHOWN]:
        print(f"  WRONG {line}")
    if len(report.failures) > MAX_FAILURES_SHOWN:
        print(f"  and {len(report.failures) - MAX_FAILURES_SHOWN} more")
