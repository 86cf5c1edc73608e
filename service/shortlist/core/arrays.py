"""Numpy arrays from JSON lists and from the arrays of other libraries, without Python code for each number."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .checks import cut
from .results import NO_CLASS, FloatArray, IdArray

Array = npt.NDArray[Any]

FLOAT32_CODE, FLOAT64_CODE, INT64_CODE = (
    "f",
    "d",
    "q",
)  # type codes of the standard library's `array`, which refuses text and null
FLOAT32 = np.dtype(np.float32)
FLOAT_DTYPES = (np.float32, np.float16)  # of context vectors; others become the first
NUMBER_KINDS = "fiu"  # numpy's letters of the dtypes that numbers may have
MAX_ID = np.iinfo(np.int64).max
MAX_PADDING_IDS = 1 << 20  # that padding may add: one long list among thousands of short ones would take gigabytes
CODE_NAMES = {FLOAT32_CODE: "numbers", FLOAT64_CODE: "numbers", INT64_CODE: "whole numbers"}
CODE_DTYPES: dict[str, npt.DTypeLike] = {FLOAT32_CODE: np.float32, FLOAT64_CODE: np.float64, INT64_CODE: np.int64}


def pack_rows(what: str, rows: list[Any], code: str) -> Array:
    """Concatenate `rows`, lists of numbers, into one array [n] of the dtype of `code`.

    Raises BadInput naming the first row that holds anything but numbers; `what` is the subject of that sentence.
    """
    numbers = array(code)
    for index, row in enumerate(rows):
        try:
            numbers.fromlist(row)
        except TypeError:
            raise BadInput(f"{what} row {index} must be a list of {CODE_NAMES[code]} alone") from None
        except OverflowError:
            raise make_size_error(what, index) from None
    packed = np.frombuffer(numbers, CODE_DTYPES[code])
    check_booleans(what, rows, packed, code)
    return packed


def make_size_error(what: str, row: int) -> BadInput:
    """The error for a number that is too large for its array."""
    return BadInput(f"{what} row {row} holds a number that is too large: send smaller ones")


def check_booleans(what: str, rows: list[Any], numbers: Array, code: str) -> None:
    """Raise BadInput where a row holds true or false, which `array` takes for 1 and 0.

    Rows are searched only where the packed `numbers` hold a 0 or a 1.
    """
    if not ((numbers == 0) | (numbers == 1)).any():
        return
    for index, row in enumerate(rows):
        if bool in map(type, row):
            raise BadInput(f"{what} row {index} must be a list of {CODE_NAMES[code]} alone, not of true or false")


def is_nested(data: Any) -> bool:
    """True if `data` is a list of lists rather than of numbers."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], list)


def parse_numbers(what: str, data: Any, code: str) -> Array:
    """Parse a flat list, or a list of lists, into [n] in row-major order; raises BadInput."""
    if not isinstance(data, list):
        raise BadInput(f"{what} must be a list of {CODE_NAMES[code]}")
    return pack_rows(what, data if is_nested(data) else [data], code)


def parse_booleans(what: str, data: Any) -> npt.NDArray[np.bool_]:
    """Parse a flat list of true and false into [n]; raises BadInput."""
    if not isinstance(data, list) or not {bool}.issuperset(map(type, data)):
        raise BadInput(f"{what} must be a flat list of true and false")
    return np.array(data, np.bool_)


def parse_float_rows(what: str, data: Any, width: int) -> FloatArray:
    """Parse a list of B equally long lists into [B, d] float32; raises BadInput. An empty list gives [0, width]."""
    if data == []:
        return np.empty((0, width), np.float32)
    if not is_nested(data):
        check_dimensions(what, (len(data),) if isinstance(data, list) else ())
    numbers: FloatArray = pack_rows(what, data, FLOAT32_CODE)
    width = len(data[0])
    ragged_row = next((index for index, row in enumerate(data) if len(row) != width), None)
    if ragged_row is not None:
        raise BadInput(
            f"{what} row {ragged_row} has {len(data[ragged_row])} numbers but row 0 has {width}: make them equal"
        )
    return numbers.reshape(len(data), width)


def parse_id_rows(what: str, data: Any) -> IdArray:
    """Parse a list of ids into [m] int64, or a list of lists into [B, m] padded with -1; raises BadInput."""
    numbers: IdArray = parse_numbers(what, data, INT64_CODE)
    if not is_nested(data):
        return numbers
    lengths = np.array([len(row) for row in data])
    check_padding(what, lengths)
    padded = np.full((len(data), lengths.max()), NO_CLASS, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = numbers
    return padded


def check_padding(what: str, lengths: IdArray) -> None:
    """Raise BadInput where rows of these `lengths` [B], of which there is one or more, would be padding mostly."""
    if lengths.size * int(lengths.max()) > MAX_PADDING_IDS + 2 * int(lengths.sum()):
        raise BadInput(f"{what} has rows of {lengths.min()} to {lengths.max()} ids: send lists of about equal length")


def to_numpy(values: Any) -> Array:
    """Convert a list, numpy array or torch tensor (any device and dtype, with or without gradient) to numpy.

    Raises BadInput for a tensor that holds no numbers, or not each of them, and for an array that masks some.
    """
    if hasattr(values, "detach"):
        values = read_tensor(values)
    elif "bfloat16" in str(getattr(values, "dtype", "")):  # of ml_dtypes, which numpy does not count among numbers
        values = values.astype(np.float32)
    if np.ma.is_masked(values):
        raise BadInput("a masked array holds numbers that do not count: fill it, or leave out its masked rows")
    return np.asarray(values)


def read_tensor(tensor: Any) -> Any:
    """A torch tensor as one on the CPU that numpy takes; raises BadInput where there is none."""
    try:
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        if "bfloat16" in str(tensor.dtype):  # numpy has no such type
            tensor = tensor.float()
        return tensor.numpy()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        kind = f"{tensor.layout}, {tensor.dtype}, on {tensor.device}".replace("torch.", "")
        raise BadInput(f"a tensor ({kind}) has no numbers that numpy reads: give a dense one, of float32") from error


def align(numbers: Array) -> Array:
    """Return `numbers`, copied if they are not aligned to their size, as ONNX Runtime and compiled loops need them."""
    return numbers if numbers.flags.aligned else numbers.copy()


def to_list(row: Any) -> Any:
    """Convert one row of ids to a list if it is an array, a tensor or a tuple; anything else is returned as it is."""
    return to_numpy(row).tolist() if hasattr(row, "__array__") else list(row) if isinstance(row, tuple) else row


def to_float_array(what: str, values: Any) -> Array:
    """Convert context vectors of any kind to [B, d] float32, or float16 if they are that; raises BadInput.

    An empty list becomes [0, 0]: no rows, of whatever width is wanted. A table's column of vectors is the list of them.
    """
    if type(values) is np.ndarray and values.dtype is FLOAT32 and values.ndim == 2 and values.flags.c_contiguous:
        return align(values)
    try:
        rows = to_numpy(values)
    except (TypeError, ValueError):
        rows = np.empty(0, np.object_)
    if holds_lists(rows):
        return to_float_array(what, list(rows))
    if rows.ndim != 2 or rows.dtype.kind not in NUMBER_KINDS:
        if isinstance(values, list | tuple):
            return parse_float_rows(what, [to_list(row) for row in values], 0)  # which knows what is wrong
        check_dimensions(what, rows.shape)
        raise BadInput(f"{what} must be numbers of shape [rows, d], not {rows.dtype}: convert them to float32")
    if rows.dtype not in FLOAT_DTYPES:
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is refused later
            rows = rows.astype(np.float32, copy=False)
    return align(np.ascontiguousarray(rows))


def parse_contexts(values: Any, name: str, dim: int) -> FloatArray:
    """Convert context vectors of any kind to [B, dim] finite float32 for the model `name`; raises BadInput."""
    rows: FloatArray = to_float_array("contexts", values).astype(np.float32, copy=False)
    check_context_shape(rows.shape, name, dim)
    return check_finite(rows) if rows.size else np.empty((len(rows), dim), np.float32)


def check_context_shape(shape: tuple[int, ...], name: str, dim: int) -> None:
    """Raise BadInput unless context vectors of `shape` are [rows, dim], or [0, 0], which an empty list becomes."""
    check_dimensions("contexts", shape)
    if shape[1] != dim and shape != (0, 0):
        raise BadInput(f"contexts have shape {cut(list(shape))} but {name} takes [rows, {dim}]")


def check_finite(rows: FloatArray) -> FloatArray:
    """Return `rows` [B, d] themselves; raises BadInput at one that holds NaN or infinity."""
    if not isfinite(np.vdot(rows, rows)) and not np.isfinite(rows).all():  # the first is cheap, but may overflow
        row = np.flatnonzero(~np.isfinite(rows).all(axis=1))[0]
        raise BadInput(f"contexts row {row} holds NaN or infinity: send finite numbers")
    return rows


def normalize_rows(rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Divide `rows` [m, d] by their lengths, float32, into `out`, if given; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]  # float32 has no room for squares
    result = np.empty_like(rows) if out is None else out
    return np.divide(rows, np.where(lengths > 0, lengths, 1), out=result, casting="same_kind")


def check_dimensions(what: str, shape: tuple[int, ...]) -> None:
    """Raise BadInput unless `shape` has the two dimensions of context vectors."""
    if len(shape) != 2:
        of_shape = f", not of shape {cut(list(shape))}" if shape else ""
        raise BadInput(f"{what} must be a list of rows, each a list of numbers{of_shape}")


def holds_lists(values: Any) -> bool:
    """Whether `values` are an array of lists, which numpy and pandas make of lists of other lengths.

    So do columns of polars and pyarrow, as numpy reads them.
    """
    is_column = getattr(values, "dtype", None) == np.object_ and getattr(values, "ndim", 0) == 1
    return is_column and isinstance(next(iter(values), None), list | tuple | np.ndarray)


def to_id_array(what: str, values: Any) -> IdArray:
    """Convert class ids of any kind to [m] or [B, m] int64, ragged lists padded with -1; raises BadInput.

    An array of lists, as a column of a table may be one, stands for the list of them.
    """
    if isinstance(values, list | tuple):
        return parse_id_rows(what, [to_list(row) for row in values])
    ids = to_numpy(values)
    if holds_lists(ids):
        return to_id_array(what, list(ids))
    if ids.ndim not in (1, 2) or (ids.size and ids.dtype.kind not in "iu"):
        kind = (
            f"{ids.dtype} of shape {cut(list(ids.shape))}"
            if ids.dtype != np.object_ or ids is values
            else type(values).__name__
        )
        raise BadInput(
            f"{what} must be whole numbers of shape [m] or [rows, m], not {kind}: give a list or an array of them"
        )
    if ids.dtype == np.uint64 and ids.size and ids.max() > MAX_ID:
        raise make_size_error(what, int((np.atleast_2d(ids) > MAX_ID).any(axis=1).argmax()))
    return align(np.ascontiguousarray(ids, np.int64))
