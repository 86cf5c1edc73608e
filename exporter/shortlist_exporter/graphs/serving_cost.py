"""The cost of a product when it is served: times of graphs in the service's own runtime, which cutoffs go by."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from shortlist.evaluation.timing import time_calls
from shortlist.runtime.session import Graph
from shortlist_models.adaptive.cost_model import Sample

from .builder import GraphBuilder, make_value

SERVING_TIMED_CLASSES = (32, 256, 1024, 2048, 4096, 8192)
TIMED_BLOCKS, BLOCK_CALLS = 5, 20
SERVING_TIMED_K = 5


def time_serving(dim: int) -> list[Sample]:
    """Time one context vector against classes of width d and narrower, by one thread: the k best and normaliser."""
    widths = sorted({max(1, dim // divisor) for divisor in (1, 4, 16)})
    random = np.random.default_rng(0)
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        for width in widths:
            context = random.standard_normal((1, width), np.float32)
            for size in SERVING_TIMED_CLASSES:
                path = write_product(
                    Path(folder) / f"{size}-{width}", random.standard_normal((width, size), np.float32)
                )
                samples.append(Sample(1, size, width, time_graph(Graph(path, "cpu", threads=1), context)))
    return samples


def time_graph(graph: Graph, context: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    """The least mean seconds of a call, of the means of some blocks of calls."""
    k = np.array([SERVING_TIMED_K])
    contexts = context.repeat(TIMED_BLOCKS * BLOCK_CALLS, axis=0)
    times = time_calls({"graph": lambda rows: graph(context=rows, k=k)[1]}, contexts, 1)["graph"]
    return float(times.seconds.reshape(TIMED_BLOCKS, BLOCK_CALLS).mean(axis=1).min())


def write_product(folder: Path, weight: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Path:
    """Write product.onnx: scores, log-softmax and the k best."""
    folder.mkdir()
    graph = GraphBuilder(folder)
    scores = graph.node("MatMul", ["context", graph.tensor("weight", weight)], "scores")
    graph.node("LogSoftmax", [scores], "logprobs", axis=1)
    graph.nodes.append(helper.make_node("TopK", ["logprobs", "k"], ["top", "at"]))
    inputs = [make_value("context", TensorProto.FLOAT, [1, len(weight)]), make_value("k", TensorProto.INT64, [1])]
    outputs = [make_value("top", TensorProto.FLOAT, [1, "k"]), make_value("at", TensorProto.INT64, [1, "k"])]
    return graph.save("product", inputs, outputs)
