"""Runs of a session over buffers that never move, one set for each of a few numbers of rows.

CUDA graphs replay the same kernels over the same addresses, and so want fixed shapes; ONNX Runtime's IO binding keeps
inputs and outputs where they are. Not run on a GPU yet: tests run it on the CPU's own memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.extras import require
from shortlist.core.results import FloatArray

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)  # rows are padded to the next of these
GRAPH_ID_OPTION = "gpu_graph_id"  # run option: which captured graph is replayed
NO_GRAPH_ID = "-1"


@dataclass(frozen=True)
class Slot:
    """Bound buffers for one number of rows."""

    binding: Any
    context: Any
    outputs: list[Any]
    options: Any


class FixedShapeSession:
    """A session from `context` [B, d] to outputs [B, n] whose n is fixed. Threads may share it: they take turns."""

    def __init__(self, session: Any, kind: str, number: int) -> None:
        """Buffers are made on device `kind` (`cuda`, `cpu`) `number` when a number of rows is first asked for."""
        self.session, self.device = session, (kind, number)
        self.dim = int(session.get_inputs()[0].shape[1])
        self.widths = {output.name: int(output.shape[1]) for output in session.get_outputs()}
        self.slots: dict[int, Slot] = {}
        self.lock = threading.Lock()
        self.free = make_run_options(NO_GRAPH_ID)

    def __call__(self, context: FloatArray) -> list[npt.NDArray[Any]]:
        """The graph's outputs for `context` [B, d], in order. Equals `session.run`."""
        rows = len(context)
        size = next((size for size in BATCH_SIZES if rows <= size), 0)
        with self.lock:
            if not size or not rows:
                found: list[npt.NDArray[Any]] = self.session.run(list(self.widths), {"context": context}, self.free)
                return found
            slot = self.slots.get(size) or self.slots.setdefault(size, self.bind_slot(size))
            slot.context.update_inplace(pad_rows(context, size))
            self.session.run_with_iobinding(slot.binding, slot.options)
            return [copy_borrowed(value.numpy())[:rows] for value in slot.outputs]

    def bind_slot(self, size: int) -> Slot:
        """Buffers for `size` rows, bound."""
        binding = self.session.io_binding()
        context = self.allocate([size, self.dim])
        binding.bind_ortvalue_input("context", context)
        outputs = [self.allocate([size, width]) for width in self.widths.values()]
        for name, value in zip(self.widths, outputs, strict=True):
            binding.bind_ortvalue_output(name, value)
        return Slot(binding, context, outputs, make_run_options(str(size)))

    def allocate(self, shape: list[int]) -> Any:
        """Uninitialised float32 memory on the device."""
        values = require("onnxruntime", "cpu").OrtValue
        return values.ortvalue_from_shape_and_type(shape, np.float32, *self.device)


def make_run_options(graph: str) -> Any:
    """Run options that name the captured graph."""
    options = require("onnxruntime", "cpu").RunOptions()
    options.add_run_config_entry(GRAPH_ID_OPTION, graph)
    return options


def pad_rows(context: FloatArray, size: int) -> FloatArray:
    """[B, d] -> [size, d], with rows of zeros."""
    if len(context) == size:
        return np.ascontiguousarray(context)
    rows = np.zeros((size, context.shape[1]), np.float32)
    rows[: len(context)] = context
    return rows


def copy_borrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in memory that the next run does not overwrite: a copy, where they are still the buffer's."""
    return values if values.flags.owndata else values.copy()
