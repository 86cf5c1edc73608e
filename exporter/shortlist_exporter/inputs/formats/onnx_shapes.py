"""Operators of ONNX that give constant numbers another shape or order of axes, as graphs do with stored weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx
import torch

KEEPING_OPERATORS = ("Identity", "Cast")
SHAPING_OPERATORS = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze")


def read_attribute(node: Any, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(x) for x in node.attribute if x.name == name), default)


def apply_shaping(node: Any, value: torch.Tensor, numbers: Sequence[int] | None) -> torch.Tensor:
    """What a node of `SHAPING_OPERATORS` makes of `value`; raises ValueError, IndexError, RuntimeError, TypeError.

    numbers: its second input, the shape or the axes, where it has one; models of former opsets name axes as attributes.
    """
    if node.op_type == "Transpose":
        return value.permute(read_attribute(node, "perm", list(range(value.ndim))[::-1]))
    if node.op_type == "Flatten":
        return flatten(value, read_attribute(node, "axis", 1))
    if node.op_type == "Reshape":
        return reshape(value, numbers or (), keep_zeros=bool(read_attribute(node, "allowzero", 0)))
    axes = read_attribute(node, "axes", None) if numbers is None else numbers
    if node.op_type == "Squeeze":
        return value.squeeze() if axes is None else value.squeeze(tuple(axes))
    return unsqueeze(value, axes)


def flatten(value: torch.Tensor, axis: int) -> torch.Tensor:
    """Two axes of many: those before `axis`, and those from it on."""
    rows = math.prod(value.shape[: axis if axis >= 0 else value.ndim + axis])
    return value.reshape(rows, -1)


def reshape(value: torch.Tensor, shape: Sequence[int], *, keep_zeros: bool) -> torch.Tensor:
    """The numbers in this shape, in which 0 stands for the length that the axis has, but where zeros are kept."""
    return value.reshape(
        [value.shape[axis] if size == 0 and not keep_zeros else size for axis, size in enumerate(shape)]
    )


def unsqueeze(value: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The numbers with an axis of length 1 at each of these places of the result."""
    ndim = value.ndim + len(axes)
    for axis in sorted(axis % ndim for axis in axes):
        value = value.unsqueeze(axis)
    return value
