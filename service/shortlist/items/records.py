"""What the frames of a log of changes hold: first how it began, then batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.bundle.manifest import Manifest
from shortlist.errors import BundleError

from .batch import ItemBatch
from .log_file import Frame, pack_frame, read_frames

FORMAT = 1
POSITION = "item_position"  # in a manifest's provenance: up to which change a bundle holds them
COSINE = "cosine"  # there, too: the rows of a bundle's layer were divided by their lengths
LOG_ENDING = ".items"


@dataclass(frozen=True)
class LogStart:
    """The first frame of a log. position: of the last change that came before the log.

    names: whether items have names. sources: the last sequence number of each source up to that position.
    """

    model: str
    dim: int
    names: bool
    position: int
    sources: dict[str, int]

    @property
    def content(self) -> bytes:
        """Its bytes in the log."""
        return json.dumps({"format": FORMAT, **vars(self)}).encode()

    @classmethod
    def read(cls, path: Path) -> LogStart | None:
        """The start of a log, None of one that is empty; raises BundleError for one that this version cannot read."""
        frame = next(read_frames(path), None)
        if frame is None:
            return None
        fields: dict[str, Any] = json.loads(frame.content)
        if fields.pop("format") != FORMAT:
            raise BundleError(f"{path} is of another format than {FORMAT}: upgrade shortlist")
        return cls(**fields)


class Record(NamedTuple):
    """The batches of one frame. position: of the last of them. end: where the frame ends in the file, in bytes."""

    position: int
    batches: list[ItemBatch]
    end: int

    def skip(self, through: int) -> list[ItemBatch]:
        """The batches that come after the position `through`."""
        wanted = max(0, self.position - through)
        return self.batches[max(0, len(self.batches) - wanted) :] if wanted else []


def find_log(folder: Path, model: str) -> Path:
    """The log of a model in a folder of logs."""
    return folder / f"{model}{LOG_ENDING}"


def read_records(path: Path, start: int = 0, end: int | None = None) -> Iterator[Record]:
    """The records of a log from a place on, which is the end of another one, and up to one."""
    frames = read_frames(path, start, end)
    if not start:
        next(frames, None)
    for frame in frames:
        yield decode_record(frame)


def decode_record(frame: Frame) -> Record:
    """The record of a frame."""
    batches, place = [], 0
    while place < len(frame.content):
        batch, place = ItemBatch.decode(frame.content, place)
        batches.append(batch)
    return Record(frame.position, batches, frame.end)


def note_sources(sources: dict[str, int], batches: list[ItemBatch]) -> None:
    """Note the sequence numbers of batches that are applied."""
    for batch in batches:
        if batch.sequence is not None:
            sources[batch.source] = max(batch.sequence, sources.get(batch.source, -1))


def shorten_log(path: Path, start: LogStart, through: int) -> tuple[LogStart, list[bytes]] | None:
    """A log without the changes up to the position `through`: its start and frames; None where they are less than half.

    start: of the log as it is.
    """
    frames = list(read_frames(path))
    old = [frame for frame in frames[1:] if frame.position <= through]
    if not old or 2 * old[-1].end < frames[-1].end:
        return None
    sources = dict(start.sources)
    for frame in old:
        note_sources(sources, decode_record(frame).batches)
    start = replace(start, position=old[-1].position, sources=sources)
    kept = [pack_frame(frame.position, frame.content) for frame in frames[1 + len(old) :]]
    return start, [pack_frame(start.position, start.content), *kept]


def find_position(manifest: Manifest) -> int:
    """Up to which change a bundle holds the changes of its items itself."""
    return int(manifest.provenance.get(POSITION, 0))


def has_cosines(manifest: Manifest) -> bool:
    """Whether the rows of a bundle's layer were divided by their lengths, as the vectors of its items are to be."""
    return bool(manifest.provenance.get(COSINE, False))
