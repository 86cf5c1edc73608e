"""ONNX Runtime sessions: device, threads, memory.

Why the settings are what they are (measured on two cores, docs/log/graphs.md): execution is sequential, because a head
is one chain of operators; threads do not spin, because idle workers would take the core that Python needs; prepacking
is off for float32 graphs, whose weights are read where they are mapped, and on for int8 previews, which are small and
much slower without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.checks import cut
from shortlist.core.graph_file import ANY_SIZE, GraphFile, Signature, TensorType
from shortlist.core.results import IdArray
from shortlist.errors import BundleError

from .cuda_graphs import FixedShapeSession
from .devices import check_provider, import_onnxruntime, list_providers, parse_device
from .threads import choose_threads

MAX_REASON_CHARACTERS = 200  # of ONNX Runtime's own message in a sentence
ADVICE = {
    "Unsupported model IR version": "install a newer ONNX Runtime",
    "under development": "install a newer ONNX Runtime",  # a set of operators that it does not know yet
    "bad_alloc": "give this process more memory",
    "Failed to allocate": "give this process more memory",
}  # by words of the message of a load that failed; else the graph is to blame

Run = Callable[[list[str], dict[str, Any], Any], list[Any]]


def make_options(threads: int, *, prepack: bool) -> Any:
    """Make session options, for the reasons at the top of this module."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # without VNNI, products of uint8 and int8 are else added in 16 bits, which saturate
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def open_session(path: Path, device: str, options: Any, *, capture: bool) -> Any:
    """Open an ONNX Runtime session; raises BundleError where ONNX Runtime refuses the graph.

    A graph with a node that has no CUDA kernel cannot be captured and is opened without. ONNX Runtime's own fall-back
    is off, since it would run on the CPU and say so on stdout.
    """
    try:
        providers = list_providers(device, capture=capture)
        return import_onnxruntime().InferenceSession(str(path), options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        if capture:
            return open_session(path, device, options, capture=False)
        advice = next((advice for words, advice in ADVICE.items() if words in str(error)), "export the bundle again")
        raise BundleError(f"ONNX Runtime cannot load {path} ({read_reason(error)}): {advice}") from error


def read_reason(error: Exception) -> str:
    """The end of what ONNX Runtime says, which is why."""
    return cut(" ".join(str(error).split())[-MAX_REASON_CHARACTERS:], MAX_REASON_CHARACTERS)


def check_signature(path: Path, session: Any, signature: Signature) -> None:
    """Raise BundleError where the session's inputs or outputs are not those of the signature."""
    check_types(path, "inputs", sort_by_name(session.get_inputs(), signature.inputs), signature.inputs)
    check_types(path, "outputs", session.get_outputs(), signature.outputs)


def sort_by_name(values: list[Any], types: Mapping[str, TensorType]) -> list[Any]:
    """ONNX Runtime's `values` in the order of `types`, others last: inputs are given by name."""
    order = list(types)
    return sorted(values, key=lambda value: order.index(value.name) if value.name in types else len(order))


def check_types(path: Path, kind: str, values: list[Any], types: Mapping[str, TensorType]) -> None:
    """Raise BundleError where ONNX Runtime's `values`, the graph's inputs or outputs, are not of these types."""
    names = [value.name for value in values]
    if names != list(types):
        raise BundleError(
            f"{path} has the {kind} {cut(', '.join(names))} instead of {', '.join(types)}: export the bundle again"
        )
    for value in values:
        expected = types[value.name]
        if value.type != f"tensor({expected.element})" or not fits(
            value.shape, expected.shape, fixes=kind == "outputs"
        ):
            raise BundleError(
                f"{path} has {value.name} as {cut(value.type)} {cut(value.shape)} instead of "
                f"{describe_type(expected)}: export the bundle again"
            )


def fits(shape: list[Any], expected: tuple[int | None, ...], *, fixes: bool) -> bool:
    """Whether a graph's shape is the expected one. fixes: whether it may fix a size that differs from call to call."""
    if len(shape) != len(expected):
        return False
    return all(
        size in (ANY_SIZE, given) or (size is None and (fixes or not isinstance(given, int)))
        for size, given in zip(expected, shape, strict=True)
    )


def describe_type(expected: TensorType) -> str:
    """The type as ONNX Runtime writes it, a size that is not fixed as `*`."""
    sizes = ", ".join("*" if size in (None, ANY_SIZE) else str(size) for size in expected.shape)
    return f"tensor({expected.element}) [{sizes}]"


def get_run(session: Any) -> Run:
    """Return a function that equals `session.run(outputs, inputs, options)` for arrays and is 4 us faster.

    This is the one reach into private names of ONNX Runtime: `InferenceSession._sess` is its C++ session, whose `run`
    skips the checks of names in Python, which the C++ session repeats. Where a version has none, it is `session.run`.
    """
    core = getattr(session, "_sess", None)
    run: Run = getattr(core, "run", session.run)
    return run


class Graph:
    """One ONNX graph ready to run: inputs by name, outputs in order. Threads may share it."""

    def __init__(
        self,
        file: Path | GraphFile,
        device: str,
        threads: int | None = None,
        *,
        prepack: bool = False,
        fixed: bool = False,
    ) -> None:
        """Load `file`.

        Raises BundleError where ONNX Runtime refuses it or its signature is another, DeviceError where CUDA fails.

        threads: of this session, None for all that the process may use. prepack: see the top of this module.
        fixed: the graph goes from `context` [B, d] alone to outputs [B, n] of fixed n, so that CUDA graphs can be used.
        """
        self.path, signature = file if isinstance(file, GraphFile) else GraphFile(file)
        options = make_options(choose_threads(threads), prepack=prepack)
        fixed = fixed and device != "cpu"
        self.session = open_session(self.path, device, options, capture=fixed)
        check_provider(self.session, device)
        if signature is not None:
            check_signature(self.path, self.session, signature)
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.fixed = FixedShapeSession(self.session, *parse_device(device)) if fixed else None
        self.run = get_run(self.session)

    def run_outputs(self, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """Run the graph and return its outputs of these names; raises BundleError where ONNX Runtime cannot."""
        try:
            return self.run(outputs, inputs, None)
        except Exception as error:  # as of open_session
            raise self.make_error(error) from error

    def __call__(self, **inputs: Any) -> list[Any]:
        """Run the graph and return all its outputs, in order; raises BundleError where ONNX Runtime cannot."""
        if self.fixed is None:
            return self.run_outputs(self.outputs, inputs)
        try:
            return self.fixed(inputs["context"])
        except Exception as error:  # as of open_session
            raise self.make_error(error) from error

    def check_ids(self, ids: IdArray, classes: int) -> None:
        """Raise BundleError where an output `ids` of this graph holds what is none of `classes` classes."""
        if ids.size and not ids.view(np.uint64).max() < classes:  # negative ids are the largest then
            raise BundleError(
                f"{self.path} returns ids from {ids.min()} to {ids.max()} but classes go from 0 to {classes - 1}: "
                "export the bundle again"
            )

    def make_error(self, error: Exception) -> BundleError:
        """The error of a run, with ONNX Runtime's reason: weights that contradict each other, or too little memory."""
        advice = "export the bundle again, or free memory"
        return BundleError(f"ONNX Runtime cannot run {self.path} ({read_reason(error)}): {advice}")
