"""Dense and our heads on a GPU, at batches of 1 to 64: `make bench-gpu`. Not run on a GPU yet.

Every head runs its own plan and, under `<head>, served`, as `Head.topk` does, which hands large requests to
dense from the crossover measured on this device. Where torch has CUDA, its fp16 product and topk stand beside them: ids
alone, without a normaliser. Contexts come from the host and ids go back to it in every call. The last line is JSON.

Without a GPU it says so in a sentence and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import DeviceError
from shortlist.evaluation.statistics import compute_precision
from shortlist.evaluation.timing import Call, time_calls
from shortlist.head import Head
from shortlist.plans.registry import Plan
from shortlist.runtime.devices import resolve_device
from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.command import make_parser, run_command
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.sweep.heads import open_heads

MODULE = "benchmarks.studies.gpu"
GPU_K = 5
GPU_BATCHES = (1, 2, 4, 8, 16, 32, 64)
GPU_HEADS = ("svd-context", "svd-context-fp32")


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="contexts and bundles stay here")
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with wikitext-2/ (default: the shipped text)")
    add("--device", default="cuda:0", help="cuda:N, or cpu to rehearse (default: %(default)s)")
    add("--rows", type=int, default=1024, help="distinct held-out rows timed (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Measure and print; 0 also where there is no GPU, 1 with one sentence where something else is wrong."""
    args = parse_arguments()
    try:
        device = resolve_device(args.device)
    except DeviceError as error:
        print(f"nothing was measured, there is no GPU here: {error}")
        return 0
    return run_command(MODULE, lambda: run_study(args, device))


def run_study(args: argparse.Namespace, device: str) -> None:
    """Export the heads where they are missing, measure them on `device` and print the JSON line."""
    data = DATASETS["smollm2"](Place(args.cache, args.data))
    folder = args.cache / ("wikitext-2" if args.data else "shipped")
    our_heads = open_heads(data, folder / "repository", 1)
    heads = {name: Head(Bundle(our_heads[name].folder, verify=False), device, 1) for name in GPU_HEADS}
    print(json.dumps(compare_contenders(heads, data, device, args.rows)))


def compare_contenders(heads: Mapping[str, Head], data: DataSet, device: str, rows: int) -> dict[str, object]:
    """By contender: mean microseconds and times over dense of a call by batch, and P@1 and P@5 of the timed answers."""
    calls = make_calls(heads, data.dense, device)
    contexts, true = data.test.contexts[:rows], data.test.best
    figures: dict[str, dict[str, object]] = {name: {"us": {}, "times_dense": {}} for name in calls}
    for batch in GPU_BATCHES:
        times = time_calls(calls, contexts, batch)
        for name, one in times.items():
            rows_true = true.first_rows(len(one.ids))
            figures[name]["us"] |= {batch: round(one.seconds.mean() * 1e6, 1)}  # type: ignore[operator]
            figures[name]["times_dense"] |= {batch: round(times["dense"].total / one.total, 2)}  # type: ignore[operator]
            figures[name] |= {f"p{k}": round(compute_precision(one.ids, rows_true, k), 5) for k in (1, GPU_K)}
    crossovers = {name: head.manifest.dense_crossover for name, head in heads.items()}
    return {"device": device, "rows": len(contexts), "text": data.name, "crossover": crossovers, "contenders": figures}


def make_calls(heads: Mapping[str, Head], dense: Dense, device: str) -> dict[str, Call]:
    """Dense, every head by its plan and as served, and torch where it has the device."""
    first = next(iter(heads.values()))
    assert first.dense is not None, "benchmarks export with the dense head"
    calls = {"dense": make_plan_call(first, first.dense)}
    for name, head in heads.items():
        calls[name] = make_plan_call(head, head.plan)
        calls[f"{name}, served"] = make_served_call(head)
    if device != "cpu" and torch.cuda.is_available():
        calls["torch fp16"] = make_torch_call(dense, device)
    return calls


def make_plan_call(head: Head, plan: Plan) -> Call:
    """A timed call of one plan, whatever the number of rows."""
    return lambda rows: head.run(plan, rows, GPU_K, UNRESTRICTED).ids


def make_served_call(head: Head) -> Call:
    """A timed call of `Head.topk`, which hands large batches to dense."""
    return lambda rows: head.topk(rows, GPU_K).ids


def make_torch_call(dense: Dense, device: str) -> Call:
    """A timed call of torch's product and topk in fp16; contexts and ids are copied from and to the host."""
    columns = torch.from_numpy(np.ascontiguousarray(dense.weight.T)).to(device, torch.float16)
    bias = 0 if dense.bias is None else torch.from_numpy(dense.bias).to(device, torch.float16)

    def topk(rows: FloatArray) -> IdArray:
        with torch.inference_mode():
            logits = torch.from_numpy(rows).to(device, torch.float16) @ columns + bias
            ids: IdArray = logits.topk(GPU_K, dim=1).indices.cpu().numpy()
        return ids

    return topk


if __name__ == "__main__":
    sys.exit(main())
