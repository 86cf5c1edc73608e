"""The application of a repository, or of a folder of shards, as Ray Serve runs it.

A Serve config file, as of a RayService, names `shortlist.fleet.ray.application:build_from_arguments`.
"""

from __future__ import annotations

import uuid
from typing import Any

from ray import serve

from shortlist.errors import BadInput
from shortlist.fleet.shards.shard_list import SHARDS_FILE, read_shard_list
from shortlist.server.settings import Settings, load_settings

from .replicas import GatheringReplica, Replica, ShardReplica

HEALTH_SECONDS = 1.0  # between looks at a replica
HEALTH_TIMEOUT_SECONDS = 10.0
MAX_REPLICAS_FACTOR = 4  # times the fewest, where nobody says
SHARD_REQUESTS = 2.0  # exchanges of a replica of a shard at a time, from which on there is another
QUEUE_FACTOR = 4  # requests that a replica takes, to those from which on there is another
REFUSED = {  # settings that a replica on a cluster cannot have
    "processes": "Ray has replicas in place of processes: give --replicas",
    "unix_socket": "Ray listens on host and port alone",
    "shared_memory": "replicas may be on other machines than their clients",
    "item_changes": "two replicas write no log of changes; serve with --processes, or export a new version",
}


def build_from_arguments(arguments: dict[str, Any]) -> Any:
    """The application by settings from the environment and these arguments, as a config file has them.

    release: an argument; another one makes Ray replace the replicas. Raises BadInput.
    """
    release = str(arguments.get("release", ""))
    return build_application(
        load_settings(**{name: value for name, value in arguments.items() if name != "release"}), release
    )


def build_application(settings: Settings, release: str | None = None) -> Any:
    """The bound application of what lies at the repository's place; raises BadInput, NotFound, BundleError.

    release: by default one that no other application has.
    """
    check_settings(settings)
    release = uuid.uuid4().hex if release is None else release
    if not (settings.repository / SHARDS_FILE).exists():
        return deploy(serve.ingress()(Replica), "Repository", settings).bind(settings, release)
    shards = range(len(read_shard_list(settings.repository).shards))
    options = settings.device, settings.threads, release
    handles = [
        deploy(ShardReplica, f"Shard{number + 1}", settings, SHARD_REQUESTS).bind(settings.repository, number, *options)
        for number in shards
    ]
    return deploy(serve.ingress()(GatheringReplica), "Gathering", settings).bind(settings, release, *handles)


def check_settings(settings: Settings) -> None:
    """Raise BadInput at a setting that says nothing on a cluster."""
    for name, reason in REFUSED.items():
        if getattr(settings, name) != Settings.model_fields[name].default:
            raise BadInput(f"--{name.replace('_', '-')} cannot be had with --ray: {reason}")
    if settings.model_control == "explicit":
        raise BadInput("--model-control explicit would reach one replica alone: give none or poll with --ray")


def deploy(kind: type, name: str, settings: Settings, target: float | None = None) -> Any:
    """A deployment with replicas of its own. target: requests of each, from which on there is another replica."""
    target = settings.replica_requests if target is None else target
    most = settings.max_replicas or MAX_REPLICAS_FACTOR * settings.replicas
    return serve.deployment(kind).options(
        name=name,
        autoscaling_config={
            "min_replicas": settings.replicas,
            "max_replicas": max(most, settings.replicas),
            "target_ongoing_requests": target,
        },
        max_ongoing_requests=max(1, round(QUEUE_FACTOR * target)),
        ray_actor_options={"num_cpus": settings.replica_cpus, "num_gpus": count_gpus(settings)},
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=HEALTH_TIMEOUT_SECONDS,
        graceful_shutdown_timeout_s=settings.drain_seconds,
    )


def count_gpus(settings: Settings) -> int:
    """How many GPUs a replica takes: one where the device is a GPU."""
    return int((settings.device or "cpu") != "cpu")
