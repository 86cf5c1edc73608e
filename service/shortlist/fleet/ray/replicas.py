"""What runs on the cluster: servers of a repository, shards of a head, and servers that gather from these."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from shortlist.fleet.shards.shard import open_shard
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist.server.app import create_app
from shortlist.server.engine.service import MakeReleases, Service
from shortlist.server.lifecycle.releases import Releases
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway

from .gathered_releases import GatheredReleases
from .shard_calls import ShardCalls

LOAD_POLL_SECONDS = 0.05
# Of a server that gathers: an exchange may not be in its event loop, and shards look after their own bundles.
GATHERING = {"inline_us": 0.0, "precision_share": 0.0, "canary_seconds": 0.0}


class Replica:
    """A server of a whole repository, by the app that `shortlist serve` has without Ray."""

    def __init__(self, settings: Settings, release: str) -> None:
        """release: another one makes Ray replace the replicas, one after the other."""
        self.settings, self.release = settings, release
        self.service: Service | None = None

    def choose_releases(self) -> MakeReleases:
        """What loads the models."""
        return Releases

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The app, which Ray calls for every request."""
        app = create_app(self.settings, None, self.choose_releases())
        self.service = app.state.service
        return Gateway(app, app.state.service)

    async def check_health(self) -> None:
        """Wait until everything is loaded; raises NotReady where no version of a model answers."""
        service = self.service
        while service is None or any(model.state == "loading" for model in service.models):
            await asyncio.sleep(LOAD_POLL_SECONDS)
            service = self.service
        service.models.check_ready()


class GatheringReplica(Replica):
    """A server of one head whose shards are deployments of their own."""

    def __init__(self, settings: Settings, release: str, *shards: Any) -> None:
        """shards: the handles of the deployments, in order."""
        super().__init__(settings.model_copy(update=GATHERING), release)
        self.shard_list = read_shard_list(settings.repository)
        self.calls = ShardCalls(self.shard_list.name, shards, settings.shard_seconds)

    def choose_releases(self) -> MakeReleases:
        return partial(GatheredReleases, self.calls, self.shard_list)


class ShardReplica:
    """One shard of a head."""

    def __init__(self, folder: Path, number: int, device: str | None, threads: int | None, release: str) -> None:
        """Open shard `number` of `folder`. release: as of `Replica`."""
        self.shard, self.release = open_shard(folder, number, device=device, threads=threads), release

    def answer(self, message: bytes) -> bytes:
        """The packed answer to a packed question; raises BadInput."""
        return self.shard.answer(message)
