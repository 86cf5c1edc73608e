"""Arguments as JSON and as tensors hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from shortlist.core.row_lists import RowLists

from tests.support.layers import DIM


class Unsendable(Exception):
    """A door has no way to say this: JSON has no NaN, a tensor no rows of different lengths."""


def convert_to_json(values: Any) -> Any:
    """`values` as JSON holds them; raises Unsendable."""
    if isinstance(values, RowLists):
        if (values.numbers < 0).any():
            raise Unsendable
        return [values.get_row(row).tolist() for row in range(len(values))]
    if isinstance(values, dict):
        return {str(id): convert_to_json(weight) for id, weight in values.items()}
    if isinstance(values, np.ndarray | np.generic | range):
        values = np.asarray(values).tolist()
    if isinstance(values, list | tuple):
        return [convert_to_json(value) for value in values]
    if isinstance(values, float) and not np.isfinite(values):
        raise Unsendable
    return values


def convert_to_tensor(values: Any, dtype: type) -> np.ndarray:
    """`values` as a client sends them, ragged lists of ids padded; raises Unsendable for what no tensor holds."""
    if isinstance(values, list | tuple) and any(isinstance(row, list | tuple | np.ndarray) for row in values):
        if not all(isinstance(row, list | tuple | np.ndarray) for row in values):
            raise Unsendable
        width = max(map(np.size, values))
        if dtype is np.int64:
            values = [[*np.atleast_1d(row).tolist(), *[-1] * (width - np.size(row))] for row in values]
    try:
        array = np.asarray(values)
    except ValueError:
        raise Unsendable from None
    if array.size == 0:
        array = array.reshape(0, DIM) if array.shape == (0,) and dtype is np.float32 else array.astype(dtype)
    whole = array.dtype.kind in "iu" and (array.size == 0 or array.max() < 2**63)
    if array.ndim > 2 or (not whole if dtype is np.int64 else array.dtype.kind not in "fiu"):
        raise Unsendable
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(dtype))


def convert_to_inputs(options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Lists and biases as inputs of /v2."""
    inputs: dict[str, np.ndarray] = {}
    for name in ("allow", "ban"):
        lists = options.get(name)
        if isinstance(lists, RowLists):
            inputs |= {name: lists.ids, f"{name}_offsets": lists.offsets, f"{name}_rows": lists.numbers}
        elif lists is not None:
            inputs[name] = convert_to_tensor(lists, np.int64)
    bias = options.get("bias")
    if bias:
        rows = [bias] if isinstance(bias, dict) else bias
        width = max(map(len, rows))
        inputs["bias_ids"] = np.array([[*row, *[-1] * (width - len(row))] for row in rows])
        inputs["bias"] = np.array([[*row.values(), *[0.0] * (width - len(row))] for row in rows], np.float32)
    return inputs
