"""Lists from JSON, and the arrays of other libraries, as numpy arrays. No Python per number."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .results import NO_CLASS, FloatArray, IdArray

Array = npt.NDArray[Any]

FLOAT32_CODE, INT64_CODE = "f", "q"  # type codes of the standard library's `array`, which refuses text and null
MAX_PADDING_IDS = 1 << 20  # numbers that padding may add: one long list among thousands would take gigabytes
CODE_NAMES = {FLOAT32_CODE: "numbers", INT64_CODE: "whole numbers"}
CODE_DTYPES: dict[str, npt.DTypeLike] = {FLOAT32_CODE: np.float32, INT64_CODE: np.int64}


def pack_rows(what: str, rows: list[Any], code: str) -> Array:
    """The numbers of `rows` (lists) one after the other, [n]; raises BadInput at a row that holds anything else."""
    numbers = array(code)
    for index, row in enumerate(rows):
        try:
            numbers.fromlist(row)
        except (TypeError, OverflowError):
            raise BadInput(f"{what} row {index} must be a list of {CODE_NAMES[code]} alone") from None
    found = np.frombuffer(numbers, CODE_DTYPES[code])
    check_booleans(what, rows, found, code)
    return found


def check_booleans(what: str, rows: list[Any], numbers: Array, code: str) -> None:
    """Raise BadInput at true or false, which `array` takes as 1 and 0: rows are searched only where there are such."""
    if not ((numbers == 0) | (numbers == 1)).any():
        return
    for index, row in enumerate(rows):
        if bool in map(type, row):
            raise BadInput(f"{what} row {index} must be a list of {CODE_NAMES[code]} alone, not of true or false")


def is_nested(data: Any) -> bool:
    """Whether `data` is a list of lists rather than of numbers."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], list)


def parse_numbers(what: str, data: Any, code: str) -> Array:
    """A flat list, or a list of lists, as [n] in row-major order."""
    if not isinstance(data, list):
        raise BadInput(f"{what} must be a list of {CODE_NAMES[code]}")
    return pack_rows(what, data if is_nested(data) else [data], code)


def parse_float_rows(what: str, data: Any, width: int) -> FloatArray:
    """A list of B equally long lists as [B, width] float32; raises BadInput. An empty list has no rows."""
    if data == []:
        return np.empty((0, width), np.float32)
    if not is_nested(data):
        raise BadInput(f"{what} must be a list of rows, each a list of numbers")
    numbers: FloatArray = pack_rows(what, data, FLOAT32_CODE)
    width = len(data[0])
    ragged = next((index for index, row in enumerate(data) if len(row) != width), None)
    if ragged is not None:
        raise BadInput(f"{what} row {ragged} has {len(data[ragged])} numbers but row 0 has {width}: make them equal")
    return numbers.reshape(len(data), width)


def parse_id_rows(what: str, data: Any) -> IdArray:
    """A list of ids as [m], or a list of lists of ids as [B, m] padded with -1; raises BadInput."""
    numbers: IdArray = parse_numbers(what, data, INT64_CODE)
    if not is_nested(data):
        return numbers
    lengths = np.array([len(row) for row in data])
    if len(data) * int(lengths.max()) > MAX_PADDING_IDS + 2 * numbers.size:
        raise BadInput(f"{what} has rows of {lengths.min()} to {lengths.max()} ids: send lists of about equal length")
    padded = np.full((len(data), lengths.max()), NO_CLASS, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = numbers
    return padded


def to_numpy(values: Any) -> Array:
    """A list, numpy array or torch tensor (of any device and dtype, with or without gradient) as a numpy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):  # numpy has no such type
            values = values.float()
    return np.asarray(values)


def to_list(row: Any) -> Any:
    """A row of ids as a list, whatever it was before."""
    return to_numpy(row).tolist() if hasattr(row, "__array__") else list(row) if isinstance(row, tuple) else row


def to_float_array(what: str, values: Any) -> Array:
    """Contexts of any kind as [B, d] float32 or float16; raises BadInput."""
    try:
        rows = to_numpy(values)
        if rows.dtype != np.float16:
            with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as that
                rows = rows.astype(np.float32, copy=False)
    except (TypeError, ValueError):
        raise BadInput(f"{what} must be numbers of shape [rows, d]") from None
    if rows.ndim != 2:
        raise BadInput(f"{what} have shape {list(rows.shape)}: give [rows, d]")
    return np.ascontiguousarray(rows)


def to_id_array(what: str, values: Any) -> IdArray:
    """Ids of any kind as [m] or [B, m] int64; ragged lists are padded with -1. Raises BadInput."""
    if isinstance(values, list):
        return parse_id_rows(
            what, values if not values or isinstance(values[0], int) else [to_list(row) for row in values]
        )
    ids = to_numpy(values)
    if ids.ndim not in (1, 2) or (ids.size and ids.dtype.kind not in "iu"):
        raise BadInput(f"{what} must be whole numbers of shape [m] or [rows, m]")
    return np.ascontiguousarray(ids, np.int64)
