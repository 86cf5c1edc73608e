"""Files of top-k results, written part by part: npz, npy of records, safetensors."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from shortlist.core.arrays import Array
from shortlist.errors import BadInput, ShortlistError

SAFETENSORS_NAMES = {"<i8": "I64", "<i4": "I32", "<f4": "F32", "<f2": "F16"}  # of numpy's dtypes
COPY_BYTES = 1 << 20  # copied at a time
RECORD_ROWS = 65_536  # rows of an npy written at a time
COPIES = 2  # of each row on the disk, once the file is put together
MEGABYTE = 1e6


class ArrayFile:
    """A file of several arrays of n rows each, which are added some rows at a time and put together at the end.

    Until then the rows are in unnamed files beside the output: memory holds one part, and a run that is killed leaves
    nothing behind.
    """

    def __init__(self, path: Path, rows: int, columns: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        """columns: dtype and shape of one row, by name. Raises BadInput, ShortlistError where the disk refuses."""
        check_suffix(path)
        self.path = path
        check_room(path, COPIES * rows * sum(np.dtype((dtype, shape)).itemsize for dtype, shape in columns.values()))
        with name_write_errors(path):
            self.columns = {
                name: Column(dtype, (rows, *shape), TemporaryFile(dir=path.parent))  # noqa: SIM115  # see __exit__
                for name, (dtype, shape) in columns.items()
            }

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Append rows [m, ...] of every column; raises ShortlistError."""
        with name_write_errors(self.path):
            for name, column in self.columns.items():
                column.file.write(np.ascontiguousarray(arrays[name], column.dtype).tobytes())

    def finish(self) -> None:
        """Write the file, whole or not at all; raises ShortlistError."""
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.unfinished")
        with name_write_errors(self.path):
            try:
                with temporary.open("wb") as file:
                    WRITERS[self.path.suffix](file, self.columns)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self.columns.values():
            column.file.close()


@dataclass(frozen=True)
class Column:
    """An array of `shape` whose rows are in `file`, as far as they were added."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: IO[bytes]

    def copy_to(self, out: IO[bytes]) -> None:
        """Append all rows to `out`."""
        self.file.seek(0)
        shutil.copyfileobj(self.file, out, COPY_BYTES)

    @property
    def nbytes(self) -> int:
        """The size of all rows in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_suffix(path: Path) -> None:
    """Raise BadInput if the name's suffix is not that of a format that can be written."""
    if path.suffix not in WRITERS:
        raise BadInput(f"{path} must end in {', '.join(WRITERS)}")


def check_out(path: Path, *inputs: Path | None) -> None:
    """Raise BadInput if a file at `path` would take the place of a folder, or of one of the files that are read."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder: give a file")
    if path.exists() and any(each is not None and each.exists() and path.samefile(each) for each in inputs):
        raise BadInput(f"{path} is read, and what is written would replace it: give another file")


def check_room(path: Path, nbytes: int) -> None:
    """Raise ShortlistError if the disk that holds `path` has fewer bytes free than `nbytes`."""
    with name_write_errors(path):
        free = shutil.disk_usage(path.parent).free
    if free < nbytes:
        sizes = f"{nbytes / MEGABYTE:,.0f} MB of disk while it is written, but {free / MEGABYTE:,.0f} MB are free"
        raise ShortlistError(f"{path} takes {sizes}: make room, or write to another disk")


@contextmanager
def name_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError, as of a full disk, into a ShortlistError that names `path`."""
    try:
        yield
    except OSError as error:
        raise ShortlistError(f"{path} cannot be written: {error.strerror}") from error


def write_npz(file: IO[bytes], columns: Columns) -> None:
    """Write an npz: one npy for every column."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy_header(member, column.dtype, column.shape)
                column.copy_to(member)


def write_safetensors(file: IO[bytes], columns: Columns) -> None:
    """Write a safetensors file: one tensor for every column."""
    entries, end = {}, 0
    for name, column in columns.items():
        begin, end = end, end + column.nbytes
        entries[name] = {
            "dtype": SAFETENSORS_NAMES[column.dtype.str], "shape": column.shape, "data_offsets": [begin, end]
        }  # fmt: skip
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for column in columns.values():
        column.copy_to(file)


def write_npy(file: IO[bytes], columns: Columns) -> None:
    """Write an npy of one record for each row, whose fields are the columns."""
    record = np.dtype([(name, column.dtype, column.shape[1:]) for name, column in columns.items()])
    total = next(iter(columns.values())).shape[0]
    write_npy_header(file, record, (total,))
    for column in columns.values():
        column.file.seek(0)
    for start in range(0, total, RECORD_ROWS):
        records = np.empty(min(RECORD_ROWS, total - start), record)
        for name, column in columns.items():
            content = column.file.read(records[name].nbytes)
            records[name] = np.frombuffer(content, column.dtype).reshape(records[name].shape)
        file.write(records.tobytes())


def write_npy_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write an npy's header; the numbers follow it."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


Columns = Mapping[str, Column]


WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".safetensors": write_safetensors,
}
