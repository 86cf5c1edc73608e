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
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import BadInput, BundleError, DeviceError
from .extras import require
from .fixed_shapes import FixedShapes
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


def providers(device: str, *, capture: bool = False) -> list[Any]:
    """Execution providers for a resolved device; `capture`: runs of a shape are captured as CUDA graphs and replayed.

    Without TF32, which rounds float32 products to ten bits: exact scores are promised.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    chosen = {"device_id": memory_of(device)[1], "use_tf32": "0", "enable_cuda_graph": str(int(capture))}
    return [("CUDAExecutionProvider", chosen), "CPUExecutionProvider"]


def memory_of(device: str) -> tuple[str, int]:
    """`cuda:N` as ONNX Runtime names memory."""
    kind, _, number = device.partition(":")
    return kind, int(number or 0)


def check_provider(session: Any, device: str) -> None:
    """Raise DeviceError where a session for CUDA came up on the CPU, as it does when a library is missing."""
    if device != "cpu" and session.get_providers()[0] != "CUDAExecutionProvider":
        raise DeviceError(f"{device} could not be used (driver or CUDA libraries missing): use --device cpu")


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


def opened(path: Path, device: str, chosen: Any, *, capture: bool) -> Any:
    """An ONNX Runtime session; raises BundleError when ONNX Runtime refuses the graph.

    Graphs of which a node has no CUDA kernel cannot be captured: those are opened without. ONNX Runtime's own
    fall-back is off, since it would end on the CPU and say so on stdout.
    """
    try:
        wanted = providers(device, capture=capture)
        return ort().InferenceSession(str(path), chosen, providers=wanted, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        if capture:
            return opened(path, device, chosen, capture=False)
        raise BundleError(f"ONNX Runtime cannot load {path}: export the bundle again") from error


def runner(session: Any) -> Callable[[list[str], dict[str, Any], Any], list[Any]]:
    """Equals `session.run` for arrays, but 4 us faster: names are checked by ONNX Runtime's core alone.

    That core is not part of its promised interface: where a version has none, it is `session.run` itself.
    """
    core = getattr(session, "_sess", None)
    run: Callable[[list[str], dict[str, Any], Any], list[Any]] = getattr(core, "run", session.run)
    return run


class Graph:
    """One ONNX graph ready to run. Threads may share it."""

    def __init__(
        self, path: Path, device: str, threads: int | None = None, *, prepack: bool = False, fixed: bool = False
    ) -> None:
        """Load `path`; raises BundleError when ONNX Runtime refuses it, DeviceError when CUDA fails.

        fixed: it goes from `context` [B, d] alone to outputs [B, n] of a fixed n, which off the CPU pays to know.
        """
        chosen = options(threads or available_threads(), prepack=prepack)
        fixed = fixed and device != "cpu"
        self.session = opened(path, device, chosen, capture=fixed)
        check_provider(self.session, device)
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.fixed = FixedShapes(self.session, *memory_of(device)) if fixed else None
        self.run = runner(self.session)

    def some(self, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """The graph's outputs of these names."""
        found: list[Any] = self.run(outputs, inputs, None)
        return found

    def __call__(self, **inputs: Any) -> list[Any]:
        """The graph's outputs, in order."""
        if self.fixed is not None:
            return self.fixed(inputs["context"])
        outputs: list[Any] = self.run(self.outputs, inputs, None)
        return outputs
