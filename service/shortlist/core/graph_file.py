"""An ONNX file and what its graph must take and give, as a bundle says it and a session checks it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ANY_SIZE = -1  # an axis of a size that only the graph knows


class TensorType(NamedTuple):
    """An input or output of a graph.

    element: ONNX's name of its dtype, such as `float` or `int64`. shape: the size of each axis; None for one that
    differs from call to call, which the graph must not fix, and ANY_SIZE.
    """

    element: str
    shape: tuple[int | None, ...]


class Signature(NamedTuple):
    """The inputs of a graph by name, and its outputs by name, in their order."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]


class GraphFile(NamedTuple):
    """The path of an ONNX file, and the signature that its graph must have; None where it may have any."""

    path: Path
    signature: Signature | None = None
