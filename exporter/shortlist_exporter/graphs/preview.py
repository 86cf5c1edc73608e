"""The graph of plan `preview`: low-rank logits of all classes, in float32 or by int8 products.

preview.onnx: `context` [B, d] -> `logits` [B, V].
"""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto
from shortlist_models import SVDSoftmax

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, make_value
from .dense import add_finish, name_logits
from .quantized import add_quantized_products


def write_preview(folder: Path, dense: Dense, module: SVDSoftmax) -> str:
    """Write preview.onnx into `folder`; returns the file's name."""
    graph = GraphBuilder(folder)
    projected = graph.node("MatMul", ["context", graph.tensor("projection", module.projection.numpy())], "p")
    if module.quantized:
        products = add_quantized_products(graph, projected, module.preview.numpy(), module.scale.numpy())
    else:
        products = graph.node("MatMul", [projected, graph.tensor("preview", module.preview.numpy().T)], "products")
    name_logits(graph, add_finish(graph, dense, products))
    path = graph.save(
        "preview",
        [make_value("context", TensorProto.FLOAT, ["B", dense.dim])],
        [make_value("logits", TensorProto.FLOAT, ["B", dense.classes])],
    )
    return path.name
