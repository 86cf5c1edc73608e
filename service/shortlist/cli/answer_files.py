"""Files of answers, written part by part: npz, npy, safetensors."""

from __future__ import annotations

import json
import math
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

from .context_files import COPIED, RECORDS, SAFETENSORS


class ArrayFile:
    """Arrays of n rows each, arriving some rows at a time, that become one npy, npz or safetensors file at the end.

    Rows wait in files without a name beside the output, so memory holds one part and a killed run leaves nothing.
    """

    def __init__(self, path: Path, rows: int, columns: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        """columns: dtype and shape of one row, by name. Raises BadInput, ShortlistError when the disk refuses."""
        check_suffix(path)
        self.path = path
        with writing(path):
            self.columns = {
                name: Column(dtype, (rows, *shape), TemporaryFile(dir=path.parent))  # noqa: SIM115  # see __exit__
                for name, (dtype, shape) in columns.items()
            }

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Append rows [m, ...] of every column; raises ShortlistError."""
        with writing(self.path):
            for name, column in self.columns.items():
                column.file.write(np.ascontiguousarray(arrays[name], column.dtype).tobytes())

    def finish(self) -> None:
        """Write the file, whole or not at all; raises ShortlistError."""
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with writing(self.path):
            try:
                with unfinished.open("wb") as file:
                    WRITERS[self.path.suffix](file, self.columns)
                unfinished.replace(self.path)
            finally:
                unfinished.unlink(missing_ok=True)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self.columns.values():
            column.file.close()


@dataclass(frozen=True)
class Column:
    """An array of `shape`, its rows in `file` so far."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: IO[bytes]

    def copy_to(self, out: IO[bytes]) -> None:
        """Append all rows to `out`."""
        self.file.seek(0)
        shutil.copyfileobj(self.file, out, COPIED)

    @property
    def nbytes(self) -> int:
        """Of all rows."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays of equally many rows, by the name's end; raises BadInput, ShortlistError when the disk refuses."""
    rows = len(next(iter(arrays.values())))
    with ArrayFile(path, rows, {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}) as file:
        file.add(arrays)
        file.finish()


def check_suffix(path: Path) -> None:
    """Raise BadInput where no file of that kind can be written."""
    if path.suffix not in WRITERS:
        raise BadInput(f"{path} must end in {', '.join(WRITERS)}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a full disk or a folder that cannot be written into one sentence."""
    try:
        yield
    except OSError as error:
        raise ShortlistError(f"{path} cannot be written: {error.strerror}") from error


def write_npz(file: IO[bytes], columns: Columns) -> None:
    """One npy for every column."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy_header(member, column.dtype, column.shape)
                column.copy_to(member)


def write_safetensors(file: IO[bytes], columns: Columns) -> None:
    """One tensor for every column."""
    entries, end = {}, 0
    for name, column in columns.items():
        begin, end = end, end + column.nbytes
        entries[name] = {
            "dtype": SAFETENSORS[column.dtype.str], "shape": column.shape, "data_offsets": [begin, end]
        }  # fmt: skip
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for column in columns.values():
        column.copy_to(file)


def write_npy(file: IO[bytes], columns: Columns) -> None:
    """One record a row, its fields the columns."""
    record = np.dtype([(name, column.dtype, column.shape[1:]) for name, column in columns.items()])
    total = next(iter(columns.values())).shape[0]
    write_npy_header(file, record, (total,))
    for column in columns.values():
        column.file.seek(0)
    for start in range(0, total, RECORDS):
        records = np.empty(min(RECORDS, total - start), record)
        for name, column in columns.items():
            content = column.file.read(records[name].nbytes)
            records[name] = np.frombuffer(content, column.dtype).reshape(records[name].shape)
        file.write(records.tobytes())


def write_npy_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """What stands before the numbers of an npy."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


Columns = Mapping[str, Column]


WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".safetensors": write_safetensors,
}
