"""A Ray cluster of several nodes on this machine, under load: what is killed, and a rolling update.

  python -m benchmarks.studies.scale.cluster SHARDS --seconds 60

Run by the interpreter that has Ray. Two shards with two replicas each and two that gather lie on three nodes. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster
from shortlist.fleet.ray.application import build_application
from shortlist.fleet.ray.serving import APPLICATION
from shortlist.fleet.shards.sharded_head import ShardedHead
from shortlist.server.settings import Settings, load_settings

from .cluster_requests import K, Load, time_requests
from .contexts import make_contexts

NODES, NODE_CPUS = 3, 2
STORE_BYTES = 80 << 20
MARK = "SHORTLIST_BENCH"  # a variable that all processes of the cluster inherit
REPLICA_TITLE = f"ray::ServeReplica:{APPLICATION}:Shard1"


def main() -> None:
    """Measure, print, and take everything down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `shortlist shard` wrote")
    parser.add_argument("--seconds", type=float, default=60, help="of load while a node and a replica are killed")
    parser.add_argument("--port", type=int, default=18_000, help="that the cluster listens on")
    args = parser.parse_args()
    os.environ[MARK] = str(os.getpid())
    cluster = start_cluster()
    settings = make_settings(args.folder, args.port, cluster.address)
    try:
        deploy(settings)
        print(json.dumps(measure(cluster, settings, args.seconds)))
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


def start_cluster() -> Cluster:
    """A head without replicas, and nodes with room for all of them."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE_BYTES})
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE_BYTES)
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster


def make_settings(folder: Path, port: int, address: str) -> Settings:
    """Settings of two small replicas of everything."""
    flags = {"repository": folder, "port": port, "ray": address, "replicas": 2, "max_replicas": 2}
    return load_settings(**flags, replica_cpus=0.2, threads=1, request_timeout=10)


def deploy(settings: Settings) -> None:
    """Start the application, or replace it. The nodes share an address, so one of them listens."""
    serve.start(proxy_location="HeadOnly", http_options={"host": settings.host, "port": settings.port})
    serve.run(build_application(settings), name=APPLICATION, route_prefix="/")


def measure(cluster: Cluster, settings: Settings, seconds: float) -> dict[str, Any]:
    """Overhead of one connection, kills under load, a rolling update under load."""
    head = ShardedHead.open(settings.repository, threads=1)
    contexts = make_contexts(64, head.manifest.dim, seed=4)
    expected = [head.topk(row[None], K).ids[0].tolist() for row in contexts]
    url = f"http://{settings.host}:{settings.port}"
    overhead = time_requests(url, contexts)
    with Load(url, contexts, expected) as load:
        kills = measure_kills(cluster, load, seconds)
    cluster.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE_BYTES)
    with Load(url, contexts, expected) as load:
        update = measure_update(settings, load)
    return {"request_us": round(overhead), "kills": kills, "update": update}


def measure_kills(cluster: Cluster, load: Load, seconds: float) -> dict[str, Any]:
    """A replica of a shard is killed after a sixth of the time, a node after half of it."""
    start = time.monotonic()
    time.sleep(seconds / 6)
    os.kill(find_replica(), signal.SIGKILL)
    time.sleep(seconds / 3)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    time.sleep(seconds / 2)
    return load.summarize(start)


def find_replica() -> int:
    """A process of the first shard's replicas that this process's cluster has."""
    mark = f"{MARK}={os.getpid()}"
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    ours = [pid for pid in pids if mark in read_proc(pid, "environ").split("\0")]
    return next(pid for pid in ours if read_proc(pid, "cmdline").startswith(REPLICA_TITLE))


def read_proc(pid: int, name: str) -> str:
    """A file of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def measure_update(settings: Settings, load: Load) -> dict[str, Any]:
    """All replicas are replaced."""
    start = time.monotonic()
    deploy(settings)
    counts = load.summarize(start)
    return counts | {"seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    main()
