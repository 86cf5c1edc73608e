"""ONNX Runtime sessions: device, threads, memory.

The settings and what was measured for them (two cores, docs/log.md):
sequential execution, because a head is one chain of operators; no spinning, because idle workers would take
the core that Python needs; prepacking off for float32 graphs, whose weights are read where they are mapped,
and on for int8 previews, which are small and much slower unpacked.
"""

from __future__ import annotations

import functools
import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import BadInput, BundleError, DeviceError
from .extras import require
from .threads import available_threads

DEVICE = re.compile(r"cpu|cuda:\d+")
VARIABLE = "SHORTLIST_DEVICE"
BUILDS = ("onnxruntime", "onnxruntime-gpu")


def resolve_device(device: str | None) -> str:
    """The device asked for, by argument or by SHORTLIST_DEVICE; `cpu` by default.

    Raises DeviceError when it is not written `cpu` or `cuda:N`, or when CUDA is not there.
    """
    name = device or os.environ.get(VARIABLE) or "cpu"
    if name == "cuda":
        name = "cuda:0"
    if not DEVICE.fullmatch(name):
        raise DeviceError(f"'{name}' is no device: use cpu or cuda:N")
    if name != "cpu" and "CUDAExecutionProvider" not in ort().get_available_providers():
        raise DeviceError(
            f"{name} was asked for but ONNX Runtime has no CUDA here: run `pip install 'shortlist[gpu]'` "
            "in place of shortlist[cpu] on a machine with an NVIDIA driver, or use --device cpu"
        )
    return name


def ort() -> Any:
    """The onnxruntime module; raises MissingExtra, or DeviceError where the extras cpu and gpu overwrote each other."""
    check_single()
    return require("onnxruntime", "cpu")


@functools.cache
def check_single() -> None:
    """Raise DeviceError where both builds of ONNX Runtime are installed: they share their files."""
    if all(map(is_installed, BUILDS)):
        raise DeviceError(
            f"{' and '.join(BUILDS)} are both installed and overwrite each other: "
            f"run `pip uninstall {' '.join(BUILDS)}`, then install shortlist[cpu] or shortlist[gpu]"
        )


def is_installed(distribution: str) -> bool:
    """Whether pip knows this distribution here."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def providers(device: str) -> list[Any]:
    """Execution providers for a resolved device."""
    if device == "cpu":
        return ["CPUExecutionProvider"]
    return [("CUDAExecutionProvider", {"device_id": int(device.partition(":")[2])}), "CPUExecutionProvider"]


def options(threads: int, *, prepack: bool) -> Any:
    """Session options; see the module's docstring for the reasons. Raises BadInput."""
    if threads < 1:
        raise BadInput(f"threads is {threads}: give 1 or more")
    chosen = ort().SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = ort().ExecutionMode.ORT_SEQUENTIAL
    chosen.log_severity_level = 3
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not prepack:
        chosen.add_session_config_entry("session.disable_prepacking", "1")
    return chosen


class Graph:
    """One ONNX graph ready to run. Threads may share it."""

    def __init__(self, path: Path, device: str, threads: int | None = None, *, prepack: bool = False) -> None:
        """Load `path`; raises BundleError when ONNX Runtime refuses it, DeviceError when CUDA fails."""
        chosen = options(threads or available_threads(), prepack=prepack)
        try:
            self.session = ort().InferenceSession(str(path), chosen, providers=providers(device))
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise BundleError(f"ONNX Runtime cannot load {path}: export the bundle again") from error
        if device != "cpu" and self.session.get_providers()[0] != "CUDAExecutionProvider":
            raise DeviceError(f"{device} could not be used (driver or CUDA libraries missing): use --device cpu")
        self.outputs = [output.name for output in self.session.get_outputs()]

    def some(self, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """The graph's outputs of these names."""
        found: list[Any] = self.session.run(outputs, inputs)
        return found

    def __call__(self, **inputs: Any) -> list[Any]:
        """The graph's outputs, in order."""
        outputs: list[Any] = self.session.run(self.outputs, inputs)
        return outputs
