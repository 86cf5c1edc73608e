"""ONNX Runtime sessions: device, threads, memory.

The settings and what was measured for them (two cores, docs/log.md):
sequential execution, because a head is one chain of operators; no spinning, because idle workers would take
the core that Python needs; prepacking off for float32 graphs, whose weights are read where they are mapped,
and on for int8 previews, which are small and much slower unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shortlist.errors import BadInput, BundleError

from .cuda_graphs import FixedShapeSession
from .devices import check_provider, import_onnxruntime, list_providers, parse_device
from .threads import available_threads


def make_options(threads: int, *, prepack: bool) -> Any:
    """Session options; see the module's docstring for the reasons. Raises BadInput."""
    if threads < 1:
        raise BadInput(f"threads is {threads}: give 1 or more")
    chosen = import_onnxruntime().SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = import_onnxruntime().ExecutionMode.ORT_SEQUENTIAL
    chosen.log_severity_level = 3
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not prepack:
        chosen.add_session_config_entry("session.disable_prepacking", "1")
    return chosen


def open_session(path: Path, device: str, chosen: Any, *, capture: bool) -> Any:
    """An ONNX Runtime session; raises BundleError when ONNX Runtime refuses the graph.

    Graphs of which a node has no CUDA kernel cannot be captured: those are opened without. ONNX Runtime's own
    fall-back is off, since it would end on the CPU and say so on stdout.
    """
    try:
        wanted = list_providers(device, capture=capture)
        return import_onnxruntime().InferenceSession(str(path), chosen, providers=wanted, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        if capture:
            return open_session(path, device, chosen, capture=False)
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
        chosen = make_options(threads or available_threads(), prepack=prepack)
        fixed = fixed and device != "cpu"
        self.session = open_session(path, device, chosen, capture=fixed)
        check_provider(self.session, device)
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.fixed = FixedShapeSession(self.session, *parse_device(device)) if fixed else None
        self.run = runner(self.session)

    def run_outputs(self, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """The graph's outputs of these names."""
        found: list[Any] = self.run(outputs, inputs, None)
        return found

    def __call__(self, **inputs: Any) -> list[Any]:
        """The graph's outputs, in order."""
        if self.fixed is not None:
            return self.fixed(inputs["context"])
        outputs: list[Any] = self.run(self.outputs, inputs, None)
        return outputs
