"""Contexts and targets from npy and safetensors files, and answers to npy, npz and safetensors: without torch."""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import safetensors
from safetensors import SafetensorError

from .arrays import Array, float_array
from .errors import BadInput, NotFound, ShortlistError
from .protocol import DATATYPES, widened

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "BF16": DATATYPES["BF16"],
}
SAFETENSORS = {"<i8": "I64", "<i4": "I32", "<f4": "F32", "<f2": "F16"}  # its names of what is written
COPIED = 1 << 20  # bytes at a time
RECORDS = 65_536  # rows at a time
KIND = "an npy file of [n, d] numbers, or a safetensors file with a tensor 'contexts'"
TARGETS_KIND = "an npy file of [n] whole numbers, or a safetensors file with a tensor 'targets'"


def read_contexts(path: Path) -> Array:
    """[n, d] float32 or float16; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        contexts = np.load(path, allow_pickle=False) if path.suffix == ".npy" else safetensors_contexts(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {KIND}") from error
    return float_array(f"contexts of {path}", contexts)


def safetensors_contexts(path: Path) -> Array:
    """The tensor `contexts`; numpy has no bfloat16, so it is widened here."""
    for name, tensor in safetensors.deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        if name == "contexts" and tensor["dtype"] in DTYPES:
            numbers: Array = np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            return widened(numbers) if tensor["dtype"] == "BF16" else numbers
    raise ValueError("no tensor 'contexts' of floats")


def read_targets(path: Path) -> Array | None:
    """[n] whole numbers: an npy, or the tensor `targets` of a safetensors file, None where that has no such tensor.

    Raises NotFound, BadInput.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        targets = np.load(path, allow_pickle=False) if path.suffix == ".npy" else safetensors_targets(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {TARGETS_KIND}") from error
    if targets is not None and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
        raise BadInput(f"targets of {path} are {targets.dtype} of shape {list(targets.shape)}: give [n] whole numbers")
    return targets


def safetensors_targets(path: Path) -> Array | None:
    """The tensor `targets` alone, or None."""
    with safetensors.safe_open(path, framework="numpy") as file:
        return file.get_tensor("targets") if "targets" in file.keys() else None


@dataclass(frozen=True)
class ContextRows:
    """Contexts [count, dim] that stay in their file; `rows` gives some of them."""

    path: Path
    count: int
    dim: int
    mapped: Callable[[], Array]
    bfloat16: bool = False  # numpy has no such type: these are the upper halves of float32

    def rows(self, start: int, stop: int) -> Array:
        """[stop - start, d] float32 or float16; raises BadInput.

        Mapped anew each time: pages that were read once would else count as this process's memory.
        """
        part = self.mapped()[start:stop]
        return float_array(f"contexts of {self.path}", widened(part) if self.bfloat16 else part)


def open_contexts(path: Path) -> ContextRows:
    """The contexts of a file of any size, memory-mapped; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        npy = path.suffix == ".npy"
        mapped = partial(np.load, path, mmap_mode="r", allow_pickle=False) if npy else mapped_safetensors(path)
        contexts = mapped()
    except (SafetensorError, ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise BadInput(f"{path} cannot be read: give {KIND}") from error
    if contexts.ndim != 2 or contexts.dtype.kind not in "fiu":
        raise BadInput(f"contexts of {path} are {contexts.dtype} {list(contexts.shape)}: give {KIND}")
    count, dim = contexts.shape
    return ContextRows(path, count, dim, mapped, bfloat16=not npy and contexts.dtype == DTYPES["BF16"])


def mapped_safetensors(path: Path) -> Callable[[], Array]:
    """A function that maps the tensor `contexts`; raises what safetensors raises, KeyError, ValueError."""
    with safetensors.safe_open(path, framework="numpy") as file:  # checks the header against the file's size
        if "contexts" not in file.keys():
            raise ValueError("no tensor 'contexts'")
    with path.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        entry = json.loads(content.read(length))["contexts"]
    shape, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
    if 0 in shape:
        return partial(np.empty, shape, dtype)
    return partial(np.memmap, path, dtype, "r", 8 + length + entry["data_offsets"][0], shape)


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


Columns = Mapping[str, Column]


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


WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".safetensors": write_safetensors,
}
