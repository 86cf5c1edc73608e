"""Rows of a contexts file that arrive one batch at a time; a killed run continues where it was.

The unfinished file, in a hidden folder beside the output, is laid out as the finished one from its first byte on
(safetensors: header, targets, documents, then contexts), so that finishing is one rename and no row is held in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from shortlist.errors import BadInput

SPOOL_FILE = "contexts.safetensors"
STATE_FILE = "state.json"
LOCK_FILE = "lock"
SAFETENSORS_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32"}  # safetensors' names

Columns = dict[str, npt.NDArray[Any]]


class Spool:
    """A file of contexts [n, d] that is being written to `out`, with `columns` of n entries.

    Entries that are not known beforehand come with their rows.
    """

    def __init__(
        self, out: Path, key: str, columns: Columns, shape: tuple[int, int], dtype: str, metadata: dict[str, str]
    ) -> None:
        """Open what an earlier run with the same `key` left, or start again; `discards_earlier_run` says which.

        Raises BadInput where another process is writing to `out`.
        """
        self.out, self.key, self.shape, self.dtype = out, key, shape, np.dtype(dtype)
        self.folder = out.parent / f".{out.name}.parts"
        self.start = make_header(columns, shape, dtype, metadata)
        self.lock = lock_folder(self.folder, out)
        state = self.read_state()
        self.row_count = int(state.get("done", 0)) if self.can_continue(state) else 0
        self.discards_earlier_run = bool(state) and not self.row_count
        self.file = self.reopen() if self.row_count else self.begin()

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def read_state(self) -> dict[str, Any]:
        """What an earlier run noted; empty where there is nothing whole."""
        try:
            state = json.loads((self.folder / STATE_FILE).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def can_continue(self, state: dict[str, Any]) -> bool:
        """Whether the earlier run had the same arguments and its rows are all there."""
        try:
            size = (self.folder / SPOOL_FILE).stat().st_size
        except OSError:
            return False
        return state.get("key") == self.key and size >= len(self.start) + int(state.get("done", 0)) * self.row_bytes

    def begin(self) -> IO[bytes]:
        """Start a new file with everything that stands before the contexts."""
        (self.folder / STATE_FILE).unlink(missing_ok=True)
        file = (self.folder / SPOOL_FILE).open("wb")
        file.write(self.start)
        return file

    def reopen(self) -> IO[bytes]:
        """Open the earlier run's file, cut after its last whole batch."""
        file = (self.folder / SPOOL_FILE).open("r+b")
        file.truncate(len(self.start) + self.row_count * self.row_bytes)
        file.seek(0, os.SEEK_END)
        return file

    def add(self, rows: npt.NDArray[np.float32], columns: Columns | None = None) -> None:
        """Append rows [m, d] and put their `columns`, m entries each, in place; then note how many rows there are."""
        for name, values in (columns or {}).items():
            self.file.seek(self.find_column(name) + self.row_count * values.itemsize)
            self.file.write(values.tobytes())
        self.file.seek(0, os.SEEK_END)
        self.file.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        self.file.flush()
        os.fsync(self.file.fileno())
        self.row_count += len(rows)
        note = self.folder / f"{STATE_FILE}.new"
        note.write_text(json.dumps({"key": self.key, "done": self.row_count}), "utf-8")
        note.replace(self.folder / STATE_FILE)

    def find_column(self, name: str) -> int:
        """The byte of the file at which a column begins."""
        length = int.from_bytes(self.start[:8], "little")
        return 8 + length + int(json.loads(self.start[8 : 8 + length])[name]["data_offsets"][0])

    def finish(self) -> None:
        """Move the whole file to `out`, and give the folder up."""
        assert self.row_count == self.shape[0], "every row must have been added"
        self.file.close()
        (self.folder / SPOOL_FILE).replace(self.out)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()

    def close(self) -> None:
        """Close the file and give the folder up; what was noted stays for the next run."""
        with contextlib.suppress(OSError):  # a full disk was reported already
            self.file.close()
        self.lock.close()


def lock_folder(folder: Path, out: Path) -> IO[bytes]:
    """A file of `folder`, which is made where it is not there, locked as long as it is open.

    Raises BadInput where another process has locked it to write to `out`: two would mix their rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / LOCK_FILE).open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadInput(f"another capture is writing {out}: wait until it has ended, or give another --out") from None
    return file


def make_header(columns: Columns, shape: tuple[int, int], dtype: str, metadata: dict[str, str]) -> bytes:
    """Everything of the safetensors file that stands before the contexts: its header, then `columns`."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, values in columns.items():
        entries[name] = make_entry(values.dtype.name, values.shape, end, end := end + values.nbytes)
    entries["contexts"] = make_entry(dtype, shape, end, end + shape[0] * shape[1] * np.dtype(dtype).itemsize)
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in columns.values())


def make_entry(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    """A tensor's line in the header."""
    return {"dtype": SAFETENSORS_TYPES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
