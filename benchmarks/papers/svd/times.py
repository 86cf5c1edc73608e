"""Table 4 of the SVD-softmax paper: the time of every stage at 262,144 x 2,048, W = 256, N = 16,384."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, time_calls
from shortlist.kernels.exact_rows import CompiledGather
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
NO_IDS: IdArray = np.empty((0, 0), np.int64)  # of a timed call that answers nothing


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
        counts = sorted({1, count_available_threads()})
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
    stages = AlgorithmOne(graphs, CompiledGather(weight, threads=threads))  # rows are gathered as plan `preview` does
    contexts = np.random.default_rng(1).standard_normal((TABLE_4_REPEATS, TABLE_4_DIM), np.float32)
    with progress_bar(f"Table 4, {threads} thread(s)"):
        times = time_calls(stages.list_calls(), contexts, 1, block=1)
    return {stage: one.summarize()["median"] / 1e3 for stage, one in times.items()}


class AlgorithmOne:
    """Algorithm 1 on one context vector [1, d], stage by stage, and dense; each with a normaliser of its own.

    A stage takes what the one before it left of the same context: they are called in turn. None returns ids.
    """

    def __init__(self, graphs: dict[str, Graph], gather: CompiledGather) -> None:
        self.graphs, self.gather = graphs, gather
        self.projected = np.zeros((1, TABLE_4_WIDTH), np.float32)
        self.scores = np.zeros(TABLE_4_CLASSES, np.float32)
        self.ids = np.arange(TABLE_4_VIEW)

    def list_calls(self) -> dict[str, Call]:
        """Dense and the stages of `FORMS`, by name, in the order in which they are called."""
        return {
            "dense": self.compute_dense,
            "V^T h": self.project,
            "preview, fp32": self.preview,
            "preview, int8": self.preview_int8,
            "selection": self.select,
            "full view": self.rescore,
            "softmax": self.normalize,
        }

    def compute_dense(self, context: FloatArray) -> IdArray:
        """All scores, and their softmax."""
        apply_softmax(self.graphs["dense"](context=context)[0][0])
        return NO_IDS

    def project(self, context: FloatArray) -> IdArray:
        """V^T h, [1, W]."""
        self.projected = self.graphs["projection"](x=context)[0]
        return NO_IDS

    def preview(self, context: FloatArray) -> IdArray:
        """The scores [V] of all classes by W columns."""
        del context
        self.scores = self.graphs["preview"](x=self.projected)[0][0]
        return NO_IDS

    def preview_int8(self, context: FloatArray) -> IdArray:
        """The scores of all classes by W int8 columns, which no stage takes."""
        del context
        self.graphs["preview8"](x=self.projected)
        return NO_IDS

    def select(self, context: FloatArray) -> IdArray:
        """The ids [N] of the best classes."""
        del context
        self.ids = find_largest(self.scores, TABLE_4_VIEW)
        return NO_IDS

    def rescore(self, context: FloatArray) -> IdArray:
        """The exact scores of the best classes, in place of their previews."""
        self.scores[self.ids] = self.gather(context, self.ids[None])[0]
        return NO_IDS

    def normalize(self, context: FloatArray) -> IdArray:
        """The softmax of all scores."""
        del context
        apply_softmax(self.scores)
        return NO_IDS


def apply_softmax(logits: FloatArray) -> FloatArray:
    """Turn logits [V] into probabilities, in place."""
    np.subtract(logits, logits.max(), out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum()
    return logits
