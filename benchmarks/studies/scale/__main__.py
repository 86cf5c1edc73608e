"""What several processes, shards and machines cost and bring: `make bench-scale`, at most 40 minutes.

  python -m benchmarks.studies.scale --parts processes shards

processes: two processes beside one, under wrk on the same cores, a full head of some 200 us a row. shards: 10,000
contexts, with ties across shards, lists and biases, exact answers of 1 to 8 shards beside those of the whole head.
ray: a cluster of three nodes on this machine, a replica and a node killed under load, then a rolling update under load;
it wants build/venvs/ray, which `make clients` makes. cost: the model of docs/scaling.md beside times of single shards,
for 10^5, 10^6 and 4 * 10^6 classes of 128 numbers. What a part found is kept: a run that was stopped goes on, and
--again measures again.

The last line is JSON. processes_speedup: requests a second of two processes over those of one. sharded_mismatches:
rows whose ids or log-probabilities differ. ray_overhead_us: the median request over one connection through Ray less
that of a server without. recovery_s: the longest time without a right answer while a replica and a node were killed.
killed_in_flight: requests that were lost or refused meanwhile. failed_requests: those of the rolling update.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shortlist.errors import NotFound, ServerError

from benchmarks.common.command import make_parser, run_command

from . import cost, processes, shards
from .plain import time_plain_server
from .ray_bundle import open_ray_shards

MODULE = "benchmarks.studies.scale"
ROOT = Path(__file__).parents[3]
RAY_PYTHON = Path("build/venvs/ray/bin/python")
SIZES = 100_000, 1_000_000, 4_000_000
MOST_CLASSES = {"full": 4_000_000, "grouped": 1_000_000}  # of one layer: more take too long to export
LOSSES = ("wrong", "failed", "untyped", "lost")


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="heads and figures stay here, below scale/")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="which (default: all)")
    parser.add_argument("--again", action="store_true", help="measure what was measured before, too")
    parser.add_argument("--seconds", type=float, default=300, help="of load on Ray while it is hurt (%(default)s)")
    return parser.parse_args()


def measure_processes(args: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Two processes beside one."""
    return processes.measure_speedup(cache)


def measure_shards(args: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Rows that differ, by question."""
    counts = shards.count_mismatches(cache)
    return {"mismatches": sum(counts.values()), "counts": counts}


def measure_ray(args: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """A cluster under load, by the interpreter that has Ray, and a server without Ray beside it."""
    if not RAY_PYTHON.exists():
        raise NotFound(f"there is no {RAY_PYTHON}: run `make clients`, or leave ray out of --parts")
    bundle, folder = open_ray_shards(cache)
    command = [str(RAY_PYTHON), "-m", f"{MODULE}.cluster", str(folder), "--seconds", str(args.seconds)]
    paths = os.pathsep.join(str(path) for path in (ROOT / "service", ROOT))
    environment = os.environ | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if process.returncode:
        raise ServerError(f"the cluster ended with {process.returncode}: run `{' '.join(command)}` to see why")
    last = [line for line in process.stdout.splitlines() if line.startswith("{")][-1]  # Ray may have the last word
    figures: dict[str, Any] = json.loads(last)
    return figures | {"plain_us": round(time_plain_server(bundle, cache))}


def measure_cost(args: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """The cost model's figures and times."""
    return {method: cost.measure_costs(cache, SIZES, method, most) for method, most in MOST_CLASSES.items()}


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "processes": measure_processes,
    "shards": measure_shards,
    "ray": measure_ray,
    "cost": measure_cost,
}


def summarize(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON line; None for what was not measured."""
    ray, update = results.get("ray"), results.get("ray", {}).get("update", {})
    kills = {} if ray is None else ray["kills"]
    return {
        "processes_speedup": results.get("processes", {}).get("speedup"),
        "sharded_mismatches": results.get("shards", {}).get("mismatches"),
        "ray_overhead_us": None if ray is None else ray["request_us"] - ray["plain_us"],
        "recovery_s": kills.get("longest_gap_s"),
        "killed_in_flight": None if ray is None else sum(kills[kind] for kind in LOSSES),
        "failed_requests": None if ray is None else sum(update[kind] for kind in LOSSES),
    }


def main() -> int:
    """Measure the parts, keep and print what they found."""
    args = parse_arguments()
    cache = args.cache / "scale"
    cache.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for name in args.parts:
        path = cache / f"{name}.json"
        if args.again or not path.exists():
            path.write_text(json.dumps(PARTS[name](args, cache), indent=1), "utf-8")
        results[name] = json.loads(path.read_text("utf-8"))
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    print(json.dumps(summarize(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(MODULE, main))
