"""The compiled loops beside numba's and beside graphs, on every target that this processor has: `make bench-kernels`.

  python -m benchmarks.studies.kernels --data DATA     with Penn Treebank's layer, DATA/ptb

One thread. numba's loops are those of the last commit that had them, checked out below the cache with a virtual
environment and a bundle of its own. Processes answer blocks of calls in turn; what they load was exported once below
the cache. The last line is JSON: ratios are of times, ours over another's; speed-ups are dense's time over ours. What
this processor, this clone or the data lack is null, and a sentence before says so.

numba_ratio: ours over numba's loops at batch 1, and at 8 and 32. avxvnni_ratio, avx2_ratio: those targets over
AVX-512 VNNI. portable_vs_graphs: portable C over graphs. first_answer_s: from the start of a process. ban_ratio: 1,000
classes banned, 200 allowed, or k = 100, over k = 5 without lists; the largest. exact_speedup, exact_b16: exact answers
at batches 1 and 16. exact_reads: the share of dense's bytes that they read, one row at a time. ptb_speedup: a head of
P@1 .998 or more on Penn Treebank's test text.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist.kernels.native.library import TARGETS, open_target
from shortlist.runtime.processor import read_processor_name

from benchmarks.common.command import make_parser, run_command
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.sweep.heads import PROMISED_HEAD, open_heads

from . import old_loops
from .first_answers import time_first_answer
from .ptb import measure_ptb
from .ratios import TIMED_K, compute_dense_speedups, compute_list_ratio
from .reads import measure_reads
from .turns import Contender, Seconds, Worker, compute_ratio, time_in_turns

MODULE = "benchmarks.studies.kernels"
BATCHES = (1, 8, 32)
TIMED_ROWS = 2048
COUNTED_ROWS = 256  # whose reads are counted
NUMBA, GRAPHS = "numba", "graphs"
SHARED_SETTINGS = "opened", "previewed", "candidates", "full_view"

Figures = dict[str, float | None]


def say(sentence: str) -> None:
    print(sentence, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="contexts, bundles and the old commit stay here")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with ptb/ (default: without it)")
    return parser.parse_args()


def list_targets() -> list[str]:
    """The targets that this processor and this build have, the fastest first."""
    names = []
    for name in TARGETS:
        try:
            if open_target(name) is not None:
                names.append(name)
        except ShortlistError:
            say(f"{name}: not measured, this processor or this build lacks it")
    return names


def list_contenders(head: Head) -> dict[str, Contender]:
    """Every target, and graphs."""
    contenders = {name: Contender(head.folder.absolute(), target=name) for name in list_targets()}
    return contenders | {GRAPHS: Contender(head.folder.absolute(), graphs=True)}


def make_old_contender(folder: Path, data: DataSet, head: Head) -> dict[str, Contender]:
    """The commit of numba's loops, searching by our head's settings; none, and a sentence, where it cannot be run."""
    weights, contexts = folder / "weights.safetensors", folder / "contexts.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    if not contexts.is_file():
        save_file({"weight": data.dense.weight}, weights)
        documents = {} if data.fit.documents is None else {"documents": data.fit.documents}
        save_file({"contexts": data.fit.contexts, **documents}, contexts)
    settings = {name: getattr(head.manifest.settings, name) for name in SHARED_SETTINGS}
    try:
        return {NUMBA: old_loops.make_contender(folder, weights, contexts, settings)}
    except ShortlistError as error:
        say(f"numba's loops: not measured, {error}")
        return {}


def time_contenders(contenders: dict[str, Contender], rows: Path) -> tuple[dict[int, dict[str, Seconds]], str]:
    """Seconds by batch and contender, and what numba's commit ran."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(contender, rows)) for name, contender in contenders.items()}
        seconds = {batch: time_in_turns(workers, batch) for batch in BATCHES}
        return seconds, workers[NUMBA].loops if NUMBA in workers else ""


def summarize_targets(seconds: dict[int, dict[str, Seconds]], numba_ran: str) -> Figures:
    """The ratios of processes; prints the table that they are of."""
    for batch, times in seconds.items():
        cells = ", ".join(f"{name} {float(np.median(one)) * 1e6:,.1f}" for name, one in times.items())
        say(f"batch {batch}, us a call: {cells}")
    one, fastest = seconds[1], next(name for name in seconds[1] if name != NUMBA)
    name = "numba_ratio" if numba_ran == NUMBA else "numba_commit_ratio"
    if numba_ran and numba_ran != NUMBA:
        say(f"numba's loops: not measured, without AVX-512 VNNI its commit answers by {numba_ran}: numba_commit_ratio")
    figures: Figures = {"numba_ratio": None, "avxvnni_ratio": None, "avx2_ratio": None}
    figures |= {
        f"{name}{'' if batch == 1 else f'_b{batch}'}": compute_ratio(times, fastest, NUMBA)
        for batch, times in seconds.items()
    }
    figures |= {f"{target}_ratio": compute_ratio(one, target, "avx512vnni") for target in ("avxvnni", "avx2")}
    return figures | {"portable_vs_graphs": compute_ratio(one, "portable", GRAPHS)}


def measure_exact(head: Head, data: DataSet, folder: Path, batch: int) -> float:
    """Dense's time over that of exact answers."""
    calls = {"exact": lambda some: head.topk(some, TIMED_K, exact=True).ids}
    return compute_dense_speedups(data.dense, folder, calls, data.test.contexts[:TIMED_ROWS], batch)["exact"]


def run_study(args: argparse.Namespace) -> None:
    """Measure and print the JSON line."""
    say(f"processor: {read_processor_name()}")
    data = DATASETS["smollm2"](Place(args.cache))
    head = open_heads(data, args.cache / "shipped" / "repository", 1, [PROMISED_HEAD])[PROMISED_HEAD]
    folder = args.cache / "kernels"
    contenders = make_old_contender(folder, data, head) | list_contenders(head)
    rows = folder / "rows.npy"
    np.save(rows, data.test.contexts[:TIMED_ROWS])
    figures = summarize_targets(*time_contenders(contenders, rows.absolute()))
    ours = Contender(head.folder.absolute())
    figures |= {
        "first_answer_s": round(time_first_answer(ours, rows, args.cache / "pycache"), 3),
        "ban_ratio": round(compute_list_ratio(head, data, data.test.contexts[:TIMED_ROWS]), 2),
        "exact_speedup": round(measure_exact(head, data, folder / "dense", 1), 2),
        "exact_b16": round(measure_exact(head, data, folder / "dense", 16), 2),
        "exact_reads": measure_reads(head, data.test.contexts[:COUNTED_ROWS]),
        "ptb_speedup": measure_ptb(args.cache, args.data, say),
    }
    print(json.dumps(figures))


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
