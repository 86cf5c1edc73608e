"""Sessions run over buffers that never move, one set of buffers for each of a few numbers of rows.

A CUDA graph replays its kernels over the same addresses, so shapes have to be fixed; ONNX Runtime's IO binding keeps
inputs and outputs where they are. Not run on a GPU yet: tests run it on the CPU's memory.
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
GRAPH_ID_OPTION = "gpu_graph_id"  # a run option of ONNX Runtime: which captured graph is replayed
NO_GRAPH_ID = "-1"  # the run is neither captured nor replayed


@dataclass(frozen=True)
class Slot:
    """Buffers for one number of rows, bound to a session: the input `context`, the outputs, and the run's options."""

    binding: Any
    context: Any
    outputs: list[Any]
    options: Any


class FixedShapeSession:
    """A session from `context` [B, d] to outputs [B, n] of fixed n. Threads may share it, one at a time."""

    def __init__(self, session: Any, kind: str, number: int) -> None:
        """kind, number: the device of the buffers, which are allocated at the first run of their size."""
        self.session, self.device = session, (kind, number)
        self.dim = int(session.get_inputs()[0].shape[1])
        self.widths = {output.name: int(output.shape[1]) for output in session.get_outputs()}
        self.slots: dict[int, Slot] = {}
        self.lock = threading.Lock()
        self.plain_options = make_run_options(NO_GRAPH_ID)

    def __call__(self, context: FloatArray) -> list[npt.NDArray[Any]]:
        """Run `context` [B, d]; returns the outputs in order, equal to those of `session.run`."""
        rows = len(context)
        size = next((size for size in BATCH_SIZES if rows <= size), 0)
        with self.lock:
            if not size or not rows:
                inputs = {"context": context}
                outputs: list[npt.NDArray[Any]] = self.session.run(list(self.widths), inputs, self.plain_options)
                return outputs
            slot = self.slots.get(size) or self.slots.setdefault(size, self.bind_slot(size))
            slot.context.update_inplace(pad_rows(context, size))
            self.session.run_with_iobinding(slot.binding, slot.options)
            return [copy_from_buffer(value.numpy())[:rows] for value in slot.outputs]

    def bind_slot(self, size: int) -> Slot:
        """Allocate buffers for `size` rows and bind them."""
        binding = self.session.io_binding()
        context = self.allocate([size, self.dim])
        binding.bind_ortvalue_input("context", context)
        outputs = [self.allocate([size, width]) for width in self.widths.values()]
        for name, value in zip(self.widths, outputs, strict=True):
            binding.bind_ortvalue_output(name, value)
        return Slot(binding, context, outputs, make_run_options(str(size)))

    def allocate(self, shape: list[int]) -> Any:
        """Allocate float32 memory on the device, uninitialised."""
        values = require("onnxruntime", "cpu").OrtValue
        return values.ortvalue_from_shape_and_type(shape, np.float32, *self.device)


def make_run_options(graph: str) -> Any:
    """Make run options that name the captured graph."""
    options = require("onnxruntime", "cpu").RunOptions()
    options.add_run_config_entry(GRAPH_ID_OPTION, graph)
    return options


def pad_rows(context: FloatArray, size: int) -> FloatArray:
    """Pad [B, d] to [size, d] with rows of zeros."""
    if len(context) == size:
        return np.ascontiguousarray(context)
    rows = np.zeros((size, context.shape[1]), np.float32)
    rows[: len(context)] = context
    return rows


def copy_from_buffer(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy values that are still in a buffer, which the next run overwrites; others are returned as they are."""
    return values if values.flags.owndata else values.copy()
