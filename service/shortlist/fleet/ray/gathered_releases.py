"""The models of a server that gathers: one head, whose shards are elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BundleError, ShortlistError, Unsupported
from shortlist.fleet.shards.gathered_head import Ask, GatheredHead, LostShard
from shortlist.fleet.shards.shard_list import ShardList
from shortlist.items.store import ItemStore
from shortlist.server.lifecycle.candidates import Candidates
from shortlist.server.lifecycle.registry import Models
from shortlist.server.lifecycle.releases import Change, ReleaseRules, Releases
from shortlist.server.lifecycle.version_table import VersionTable
from shortlist.server.models import Model

log = logging.getLogger(__name__)

START_SECONDS = 30.0  # that shards have to answer for the first time: the caches of one that has just begun are cold
RETRY_SECONDS = 0.1


def await_shards(head: GatheredHead) -> None:
    """Ask every shard until all have answered; raises LostShard where one does not within START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            head.run(head.plan, head.make_probe(), 1, UNRESTRICTED)
            return
        except LostShard:
            if time.monotonic() > end:
                raise
        time.sleep(RETRY_SECONDS)


class GatheredModel(Model):
    """A version whose head asks shards; it is ready once all of them have answered."""

    def __init__(self, shard_list: ShardList, folder: Path, ask: Ask) -> None:
        super().__init__(shard_list.name, shard_list.version, folder)
        self.shard_list, self.ask = shard_list, ask

    def load(
        self, device: str | None, threads: int | None, bundle: Bundle | None = None, items: ItemStore | None = None
    ) -> None:
        """Wait until every shard has answered, then become ready; raises LostShard, BundleError."""
        head = GatheredHead(self.folder, self.shard_list, self.ask)
        await_shards(head)
        head.label_array  # noqa: B018 - laid out now
        with self.changing:
            self._head = head
        self.state, self.reason = "ready", ""
        log.info("%s is ready in %d shards", self, len(self.shard_list.shards))


class GatheredReleases(Releases):
    """What `Releases` is to a repository, of one folder of shards: its one version never changes."""

    def __init__(
        self, ask: Ask, shard_list: ShardList, folder: Path, rules: ReleaseRules, publish: Callable[[Model], None]
    ) -> None:
        self.rules, self.publish = rules, publish
        self.candidates = Candidates(folder, None, None)
        self.models, self.stop_event = Models(), threading.Event()
        self.model = GatheredModel(shard_list, folder, ask)
        self.models.put(VersionTable(self.model.name, {self.model.version: self.model}))

    def list_models(self) -> list[str]:
        return [self.model.name]

    def update(self, name: str, *, again: bool = False, mark: Model | None = None) -> Change:
        """Connect to the shards, unless that is done. mark: of no use, since no other version takes its place."""
        change = Change()
        if self.model.head_in_use is not None and not again:
            return change
        try:
            self.model.load(None, None)
        except ShortlistError as error:
            log.error("%s failed: %s", self.model, error)
            self.model.set_aside("failed", str(error))
            change.failures.append(BundleError(f"{self.model} could not be loaded: {error}"))
            return change
        self.publish(self.model)
        change.loaded.append(self.model)
        return change

    def reload(self, name: str) -> Change:
        raise Unsupported("a head in shards is not loaded by request: run `shortlist serve --ray` again")

    def unload(self, name: str) -> list[Model]:
        raise Unsupported("a head in shards is not unloaded by request: stop the application in Ray")
