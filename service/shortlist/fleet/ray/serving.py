"""`shortlist serve --ray [ADDRESS]`: the application is started, or replaced without a pause, and Ray keeps it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import Any

import ray
from ray import serve

from shortlist.errors import NotReady
from shortlist.fleet.shards.shard_list import SHARDS_FILE, read_shard_list
from shortlist.server.settings import LOCAL_RAY, Settings

from .application import build_application

APPLICATION = "shortlist"
REPORTS_VARIABLE = "RAY_USAGE_STATS_ENABLED"  # else Ray sends its makers how it is used, every hour
TIMEOUT_MARGIN_SECONDS = 5  # that Ray waits longer than the server: its own answer is the better one


def serve_on_ray(settings: Settings) -> int:
    """Serve on a cluster that there is and return once all replicas answer; or on one that ends with this process.

    Raises BadInput, NotFound, BundleError; NotReady where Ray cannot start the replicas.
    """
    application = build_application(settings)
    connect(settings)
    host, port = settings.host, settings.port or find_free_port(settings.host)
    try:
        serve.start(proxy_location="EveryNode", http_options=make_http_options(settings, host, port))
        serve.run(application, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise NotReady(f"Ray could not start the replicas ({error}): see their logs in Ray's session folder") from None
    scheme = "http" if settings.tls_cert is None else "https"
    print(f"listening on {scheme}://{host}:{port}\n", end="", file=sys.stderr, flush=True)  # noqa: T201  # as without Ray
    if settings.ray == LOCAL_RAY:
        wait_for_signal()
        serve.shutdown()
        ray.shutdown()
    return 0


def connect(settings: Settings) -> None:
    """Connect to the cluster at an address, or start one here, which reports to nobody; raises NotReady."""
    if settings.ray == LOCAL_RAY:
        os.environ.setdefault(REPORTS_VARIABLE, "0")
        cpus = max(os.cpu_count() or 1, count_cpus(settings))
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, configure_logging=False)
        return
    try:
        ray.init(address=settings.ray, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NotReady(f"no Ray cluster answers at {settings.ray} ({error}): start it, or give its address") from None


def count_cpus(settings: Settings) -> int:
    """The CPUs that the fewest replicas ask Ray for, with room for as many while these are replaced."""
    path = settings.repository
    deployments = 1 + (len(read_shard_list(path).shards) if (path / SHARDS_FILE).exists() else 0)
    return 1 + int(2 * deployments * settings.replicas * settings.replica_cpus)


def make_http_options(settings: Settings, host: str, port: int) -> dict[str, Any]:
    """How Ray's proxies listen."""
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "request_timeout_s": settings.request_timeout + TIMEOUT_MARGIN_SECONDS,
        "keep_alive_timeout_s": int(settings.keep_alive),
    }
    if settings.tls_cert is not None:
        options |= {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}
    return options


def find_free_port(host: str) -> int:
    """A port that is free now."""
    with contextlib.closing(socket.create_server((host, 0))) as listener:
        return int(listener.getsockname()[1])


def wait_for_signal() -> None:
    """Wait for SIGTERM or Ctrl-C."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
