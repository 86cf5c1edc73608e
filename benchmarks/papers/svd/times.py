"""Table 4 of the SVD-softmax paper: the time of every stage at 262,144 x 2,048, W = 256, N = 16,384."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from shortlist.core.results import FloatArray
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.plans.common.exact_rows import COMPILED_THREADS
from shortlist.plans.common.selection import find_largest
from shortlist.runtime.session import Graph
from shortlist.runtime.threads import count_available_threads
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.graphs.builder import GraphBuilder, make_value
from shortlist_exporter.graphs.dense import write_dense
from shortlist_exporter.graphs.quantized import UINT8_ZERO_POINT, add_quantized_contexts
from shortlist_exporter.inputs.sources import Dense

TABLE_4_CLASSES, TABLE_4_DIM, TABLE_4_WIDTH, TABLE_4_VIEW = 262_144, 2048, 256, 16_384
TABLE_4_REPEATS = 9


# What each form of SVD-softmax is made of.
FORMS = {
    "SVD-softmax, fp32 preview": ("V^T h", "preview, fp32", "selection", "full view", "softmax"),
    "SVD-softmax, int8 preview": ("V^T h", "preview, int8", "selection", "full view", "softmax"),
}


@dataclass(frozen=True)
class Stages:
    """Stage -> threads -> milliseconds, medians; `dense` is whole, its softmax included."""

    ms: dict[str, dict[int, float]]

    def total(self, form: str, threads: int) -> float:
        """Milliseconds of all stages of one of `FORMS` together."""
        return sum(self.ms[stage][threads] for stage in FORMS[form])

    def markdown(self) -> str:
        """The stages as a Markdown table."""
        counts = sorted(next(iter(self.ms.values())))
        lines = ["| stage, ms | " + " | ".join(f"{count} thread(s)" for count in counts) + " |\n"]
        lines.append("|---" * (1 + len(counts)) + "|\n")
        for stage, by_threads in self.ms.items():
            lines.append(f"| {stage} | " + " | ".join(f"{by_threads[count]:.2f}" for count in counts) + " |\n")
        for form in FORMS:
            totals = [(self.total(form, count), self.ms["dense"][count]) for count in counts]
            cells = [f"{total:.2f}, {dense / total:.2f} times as fast" for total, dense in totals]
            lines.append(f"| **{form}** | " + " | ".join(cells) + " |\n")
        return "".join(lines)


def time_stages(folder: Path) -> Stages:
    """Write the graphs (6 GB, removed afterwards), time every stage on one thread and on all."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        write_graphs(folder)
        counts = sorted(
            {1, min(COMPILED_THREADS, count_available_threads())}
        )  # with more, rows are rescored by their graph
        by_threads = {count: time_stages_once(folder, count) for count in counts}
        return Stages({stage: {count: by_threads[count][stage] for count in counts} for stage in by_threads[counts[0]]})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_graphs(folder: Path) -> None:
    """Dense, preview (projection and product apart), and the weights by row."""
    random = np.random.default_rng(0)
    dense = Dense(random.standard_normal((TABLE_4_CLASSES, TABLE_4_DIM), np.float32))
    with progress_bar("graphs of 262,144 x 2,048"):
        write_dense(folder, dense)
        GraphBuilder(folder).tensor("weight", dense.weight)
        write_product(folder, "projection", random.standard_normal((TABLE_4_DIM, TABLE_4_WIDTH), np.float32))
        write_product(folder, "preview", random.standard_normal((TABLE_4_WIDTH, TABLE_4_CLASSES), np.float32))
        write_integer_product(folder, random.integers(-127, 128, (TABLE_4_WIDTH, TABLE_4_CLASSES), np.int8))


def write_integer_product(folder: Path, matrix: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> None:
    """preview8.onnx: as the exporter writes an int8 preview, `x` [B, W] -> `y` [B, V]."""
    graph = GraphBuilder(folder)
    integers, scale = add_quantized_contexts(graph, "x")
    weights, zero = graph.tensor("preview8_matrix", matrix), graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))
    sums = graph.node("Cast", [graph.node("MatMulInteger", [integers, weights, zero], "sums")], "floats", to=1)
    by_class = graph.node(
        "Mul", [sums, graph.tensor("class_scale", np.full(TABLE_4_CLASSES, 0.01, np.float32))], "by_class"
    )
    graph.node("Mul", [by_class, scale], "y")
    ends = [make_value(end, TensorProto.FLOAT, ["B", size]) for end, size in zip("xy", matrix.shape, strict=True)]
    graph.save("preview8", ends[:1], ends[1:])


def write_product(folder: Path, name: str, matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    """`name`.onnx: `x` [B, n] -> `y` [B, m]."""
    graph = GraphBuilder(folder)
    graph.node("MatMul", ["x", graph.tensor(f"{name}_matrix", matrix)], "y")
    ends = [make_value(end, TensorProto.FLOAT, ["B", size]) for end, size in zip("xy", matrix.shape, strict=True)]
    graph.save(name, ends[:1], ends[1:])


def time_stages_once(folder: Path, threads: int) -> dict[str, float]:
    """Milliseconds of each stage of Algorithm 1, interleaved with dense."""
    names = ("dense", "projection", "preview", "preview8")
    graphs = {name: Graph(folder / f"{name}.onnx", "cpu", threads, prepack=name == "preview8") for name in names}
    weight = np.asarray(np.memmap(folder / "weight.bin", np.float32, "c", shape=(TABLE_4_CLASSES, TABLE_4_DIM)))
    rows = CompiledGather(weight)  # what plan `preview` rescores with
    contexts = np.random.default_rng(1).standard_normal((TABLE_4_REPEATS + 2, 1, TABLE_4_DIM), np.float32)
    seconds: dict[str, list[float]] = {}
    with progress_bar(f"Table 4, {threads} thread(s)") as report:
        for number, context in enumerate(contexts):
            for name, ms in time_one_context(graphs, rows, context).items():
                seconds.setdefault(name, []).append(ms)
            report(f"Table 4, {threads} thread(s)", number + 1, len(contexts))
    return {name: float(np.median(values[2:])) for name, values in seconds.items()}


def time_one_context(graphs: dict[str, Graph], rows: CompiledGather, context: FloatArray) -> dict[str, float]:
    """One context vector through dense and through every stage, each with its own normaliser."""
    ms: dict[str, float] = {}

    def clock(name: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        ms[name] = (time.perf_counter() - start) * 1e3
        return result

    clock("dense", lambda: apply_softmax(graphs["dense"](context=context)[0][0]))
    projected = clock("V^T h", lambda: graphs["projection"](x=context)[0])
    preview = clock("preview, fp32", lambda: graphs["preview"](x=projected)[0][0])
    clock("preview, int8", lambda: graphs["preview8"](x=projected)[0][0])
    ids = clock("selection", lambda: find_largest(preview, TABLE_4_VIEW))
    preview[ids] = clock("full view", lambda: rows(context, ids[None])[0])
    clock("softmax", lambda: apply_softmax(preview))
    return ms


def apply_softmax(logits: FloatArray) -> FloatArray:
    """Turn logits [V] into probabilities, in place."""
    np.subtract(logits, logits.max(), out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum()
    return logits
