"""The changes of one model's items: written to its log by one thread, then shown to every version that is served."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from shortlist.errors import BundleError, NotReady, Overloaded, ShortlistError, StorageFull, TooLarge

from .batch import ItemBatch
from .log_file import LogFile
from .overlay import ItemOverlay
from .records import LogStart, Record, note_sources, read_records, shorten_log
from .shared_log import SharedLog

log = logging.getLogger(__name__)

MAX_GROUP_ITEMS = 1 << 17  # of batches that are written together, and of those that are read again together
MAX_WAITING_BATCHES = 4096
MAX_CHANGED_ITEMS = 1_000_000  # of a model, that are not exported yet
STOP_SECONDS = 10.0
FAULT_SECONDS = 10.0  # between lines of the log on changes that could not be made
SHUT = "the server stops, and no item is changed any more: send the same again when it is back"

Waiting = tuple[ItemBatch, "Future[Applied]"]


class Applied(NamedTuple):
    """What became of a batch. position: of the last change. applied: False where it was applied before."""

    position: int
    applied: bool


class Ledger:
    """Puts changes in order and on disk. Threads may share it.

    position: of the last change. sources: the last sequence number of each source. applied_items: how many items the
    batches of this process have changed.
    """

    def __init__(self, path: Path, start: LogStart, through: int, *, shared: bool = False) -> None:
        """Open or make the log of a model; changes up to the position `through` are in every version that there is.

        shared: whether other processes of this server write it, too. Raises BundleError where the log is damaged, or of
        another model.
        """
        self.path, self.start, self.file = path, start, LogFile(path, shared=shared)
        self.position, self.sources, self.applied_items = start.position, dict(start.sources), 0
        self.fault_time = -math.inf
        self.shared = None
        try:
            self.shared = SharedLog(path) if shared else None
            self.open(through)
        except BaseException:
            self.close_files()
            raise
        self.overlays: weakref.WeakSet[ItemOverlay] = weakref.WeakSet()
        self.waiting: list[Waiting] = []
        self.changed, self.stopping = threading.Condition(), False
        self.writing, self.applying = threading.Lock(), threading.Lock()  # in this order, where both are held
        self.thread = threading.Thread(target=self.write_all, name=f"items-{start.model}", daemon=True)
        self.thread.start()

    def open(self, through: int) -> None:
        """Begin the log, or read how far it came."""
        start = LogStart.read(self.path)
        if start is None:
            self.file.append(self.start.position, self.start.content)
        else:
            self.check_start(start)
            self.start = start
            if self.file.is_first:
                self.trim(through)
            self.read_all()
        if self.shared is not None and self.file.is_first:
            self.shared.end = self.file.size
            self.file.share()

    def read_all(self) -> None:
        """Read how far the log is, and its sources."""
        self.position, self.sources = self.start.position, dict(self.start.sources)
        for record in read_records(self.path, 0, self.file.size):
            self.position = record.position
            note_sources(self.sources, record.batches)

    def check_start(self, start: LogStart) -> None:
        """Raise BundleError for the log of other items than the model's."""
        for what in ("model", "dim", "names"):
            ours, theirs = getattr(self.start, what), getattr(start, what)
            if ours != theirs:
                raise BundleError(
                    f"{self.path} holds changes of items with {what} {theirs} and this model has {ours}: move it away"
                )

    def trim(self, through: int) -> None:
        """Drop what every version holds, where that is most of the log; without room for the rest all of it stays."""
        shorter = shorten_log(self.path, self.start, through)
        if shorter is None:
            return
        start, frames = shorter
        try:
            self.file.replace(frames)
            self.start = start
        except StorageFull as error:
            log.warning("%s keeps changes that every version holds: %s", self.path, error)

    def attach(self, overlay: ItemOverlay) -> None:
        """Show all changes to a version, now and from now on.

        Raises BundleError where the log begins after it, StorageFull where the log was moved away.
        """
        if overlay.position < self.start.position:
            raise BundleError(
                f"{self.path} begins after change {self.start.position} and this version holds changes up to "
                f"{overlay.position}: export it again, or serve a newer one"
            )
        self.file.check_place()
        end = self.replay(overlay, 0)
        with self.turn(), self.applying:
            self.replay(overlay, end)
            if overlay.position > self.position:  # the log was moved away
                self.file.append(overlay.position, b"")
                self.position = overlay.position
                self.publish()
            self.overlays.add(overlay)
        if self.shared is not None:
            overlay.follow_by(self.follow)

    def replay(self, overlay: ItemOverlay, start: int) -> int:
        """Make the changes of the log from the byte `start` on; returns where it ends."""
        records: list[Record] = []
        end, items = start, 0
        for record in read_records(self.path, start, self.file.size):
            end = record.end
            records.append(record)
            items += sum(batch.size for batch in record.batches)
            if items > MAX_GROUP_ITEMS:
                apply_records(overlay, records)
                records, items = [], 0
        apply_records(overlay, records)
        return end

    def submit(self, batch: ItemBatch) -> Future[Applied]:
        """Write a batch and make its changes; raises Overloaded, TooLarge, NotReady.

        What is returned becomes its result once it is on the disk and every search finds it, or StorageFull.
        """
        self.check_room(batch)
        future: Future[Applied] = Future()
        with self.changed:
            if self.stopping:
                raise NotReady(SHUT)
            if len(self.waiting) >= MAX_WAITING_BATCHES:
                raise Overloaded(f"{len(self.waiting)} batches of changes wait to be written: send more at once")
            self.waiting.append((batch, future))
            self.changed.notify()
        return future

    def check_room(self, batch: ItemBatch) -> None:
        """Raise TooLarge where so many items were changed that a search looks at all of them for too long."""
        most = max((len(overlay.live_rows) for overlay in list(self.overlays)), default=0)
        if most + len(batch.put) > MAX_CHANGED_ITEMS:
            raise TooLarge(f"{most} items are changed: fold them into a new version with `shortlist compact`")

    def write_all(self) -> None:
        """Write what waits, as much as there is together, until the server stops."""
        while True:
            with self.changed:
                while not self.waiting and not self.stopping:
                    self.changed.wait()
                group = self.take_group()
            if not group:
                return
            self.commit([each for each in group if each[1].set_running_or_notify_cancel()])

    def take_group(self) -> list[Waiting]:
        """The batches that are written next."""
        count = items = 0
        while count < len(self.waiting) and items < MAX_GROUP_ITEMS:
            items += self.waiting[count][0].size
            count += 1
        group, self.waiting = self.waiting[:count], self.waiting[count:]
        return group

    def commit(self, group: list[Waiting]) -> None:
        """Write batches by one flush to the disk, make their changes, and say so."""
        try:
            with self.turn():
                results = self.write_group([batch for batch, _ in group])
        except Exception as error:  # becomes the result of everybody who waits
            self.note_fault(error)
            for _, future in group:
                future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)

    def note_fault(self, error: Exception) -> None:
        """Log why changes could not be made: of what nobody foresaw always, of a full disk now and then."""
        if not isinstance(error, ShortlistError):
            log.error("%s: changes could not be made", self.path, exc_info=error)
        elif time.monotonic() - self.fault_time > FAULT_SECONDS:
            self.fault_time = time.monotonic()
            log.error("changes could not be made: %s", error)

    def write_group(self, batches: list[ItemBatch]) -> list[Applied]:
        """Write batches as one group; those whose sequence number was applied before change nothing."""
        sources, position = dict(self.sources), self.position
        fresh: list[ItemBatch] = []
        results = []
        for batch in batches:
            is_new = batch.sequence is None or batch.sequence > sources.get(batch.source, -1)
            if is_new:
                position += 1
                fresh.append(batch)
                note_sources(sources, [batch])
            results.append(Applied(position, is_new))
        if fresh:
            self.file.append(position, b"".join(batch.encode() for batch in fresh))
            with self.applying:
                self.show(Record(position, fresh, self.file.size), sources)
            self.publish()
            self.applied_items += sum(batch.size for batch in fresh)
        return results

    def show(self, record: Record, sources: dict[str, int]) -> None:
        """Make the changes of a record that is on the disk."""
        self.position, self.sources = record.position, sources
        for overlay in list(self.overlays):
            apply_records(overlay, [record])

    # what other processes write

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Write to the log alone, once all that others wrote is read; raises StorageFull where it was moved away."""
        with self.writing:
            self.file.check_place()
            if self.shared is None:
                yield
                return
            with self.shared.turn():
                with self.applying:
                    self.read_on(None)
                self.file.cut_torn_end()  # of a process that was killed
                self.publish()
                yield

    def publish(self) -> None:
        """Let other processes know how far the log is."""
        if self.shared is not None:
            self.shared.end = self.file.size

    def follow(self) -> None:
        """Make the changes that other processes have written, if there are some: before each search and look-up."""
        if self.shared is not None and self.shared.end > self.file.size:
            with self.applying:
                self.read_on(self.shared.end)

    def read_on(self, end: int | None) -> None:
        """Make the changes that follow those that are known, up to a place in the log or to its end."""
        for record in read_records(self.path, self.file.size, end):
            self.file.size = record.end
            sources = dict(self.sources)
            note_sources(sources, record.batches)
            self.show(record, sources)

    def close(self) -> None:
        """Write what waits, and let go of the log."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join(STOP_SECONDS)
        self.close_files()

    def close_files(self) -> None:
        """Let go of the log, and of what is shared of it."""
        self.file.close()
        if self.shared is not None:
            self.shared.close()


def apply_records(overlay: ItemOverlay, records: list[Record]) -> None:
    """Make the changes of records that come after those which the overlay has."""
    batches = [batch for record in records for batch in record.skip(overlay.position)]
    if batches:
        overlay.apply(records[-1].position, batches)
    elif records:
        overlay.position = max(overlay.position, records[-1].position)
