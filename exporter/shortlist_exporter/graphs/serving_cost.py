"""What a product costs when it is served: graphs run by the service's own runtime, for the choice of cutoffs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from shortlist.runtime.session import Graph
from shortlist_models.adaptive.cost_model import Sample, time_call

from .builder import GraphBuilder, value

SIZES = (32, 256, 1024, 2048, 4096, 8192)
CALLS = 20  # timed together
K = 5


def serving_samples(dim: int, threads: int = 1, sizes: Sequence[int] = SIZES) -> list[Sample]:
    """One context vector against classes of width d and narrower, the k best and the normaliser included."""
    widths = sorted({max(1, dim // divisor) for divisor in (1, 4, 16)})
    random = np.random.default_rng(0)
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        for width in widths:
            context = random.standard_normal((1, width), np.float32)
            for size in sizes:
                path = write_product(
                    Path(folder) / f"{size}-{width}", random.standard_normal((width, size), np.float32)
                )
                samples.append(Sample(1, size, width, timed(Graph(path, "cpu", threads), context)))
    return samples


def timed(graph: Graph, context: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    """Seconds of a call."""
    inputs = {"context": context, "k": np.array([K])}

    def calls() -> None:
        for _ in range(CALLS):
            graph(**inputs)

    return time_call(calls) / CALLS


def write_product(folder: Path, weight: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Path:
    """Scores, log-softmax and the k best."""
    folder.mkdir()
    graph = GraphBuilder(folder)
    scores = graph.node("MatMul", ["context", graph.tensor("weight", weight)], "scores")
    graph.node("LogSoftmax", [scores], "logprobs", axis=1)
    graph.nodes.append(helper.make_node("TopK", ["logprobs", "k"], ["top", "at"]))
    inputs = [value("context", TensorProto.FLOAT, [1, len(weight)]), value("k", TensorProto.INT64, [1])]
    outputs = [value("top", TensorProto.FLOAT, [1, "k"]), value("at", TensorProto.INT64, [1, "k"])]
    return graph.save("product", inputs, outputs)
