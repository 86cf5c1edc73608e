"""A small layer, and its files in every format."""

import gguf
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

V, D = 12, 32
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((V, D)).astype(np.float32)
BIAS = RANDOM.standard_normal(V).astype(np.float32)
CONTEXTS = RANDOM.standard_normal((5, D)).astype(np.float32)


def check(dense, bias=True, dtype="float32", weight=WEIGHT):
    assert dense.weight.dtype == np.float32
    assert dense.weight.flags.c_contiguous
    np.testing.assert_array_equal(dense.weight, weight)
    if bias:
        np.testing.assert_allclose(dense.bias, BIAS, rtol=1e-6)
    else:
        assert dense.bias is None
    assert (dense.logit_scale, dense.soft_cap, dense.dtype, len(dense.sha256)) == (1.0, None, dtype, 64)


def tensors(**named):
    return {name.replace("__", "."): torch.tensor(values) for name, values in named.items()}


def save_torch(path, content, **options):
    torch.save(content, path, **options)
    return path


def save_onnx(path, nodes, initializers, output="y", **options):
    """Nodes as (op, inputs, output, attributes); the input is `x`."""
    graph = helper.make_graph(
        [helper.make_node(op, names, [output_name], **attributes) for op, names, output_name, attributes in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", D])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in output.split()],
        [numpy_helper.from_array(np.ascontiguousarray(values), name) for name, values in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path, **options)
    return path


SPELLINGS = {
    "matmul": ([("MatMul", ["x", "W"], "p", {}), ("Add", ["p", "b"], "y", {})], WEIGHT.T),
    "bias first": ([("MatMul", ["x", "W"], "p", {}), ("Add", ["b", "p"], "y", {})], WEIGHT.T),
    "gemm": ([("Gemm", ["x", "W", "b"], "y", {})], WEIGHT.T),
    "gemm, transB": ([("Gemm", ["x", "W", "b"], "y", {"transB": 1})], WEIGHT),
    "transpose": (
        [("Transpose", ["W"], "t", {"perm": [1, 0]}), ("MatMul", ["x", "t"], "p", {}), ("Add", ["p", "b"], "y", {})],
        WEIGHT,
    ),
    "softmax after": (
        [
            ("MatMul", ["x", "W"], "p", {}),
            ("Add", ["p", "b"], "q", {}),
            ("Cast", ["q"], "r", {"to": TensorProto.FLOAT}),
            ("LogSoftmax", ["r"], "y", {}),
        ],
        WEIGHT.T,
    ),
}


def save_gguf(path, tensors, architecture="llama", tokens=None, types=None, parts=None, file_type=None, **settings):
    """Tensors as arrays, or (array, type) to quantise. parts: how many files the model says it is in.

    file_type: "model" or "adapter"; None leaves it out.
    """
    writer = gguf.GGUFWriter(path, architecture)
    if file_type is not None:
        writer.add_type(file_type)
    if parts is not None:
        writer.add_uint16("split.count", parts)
    for name, value in settings.items():
        writer.add_float32(f"{architecture}.{name}", value)
    if tokens is not None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_types(types or [1] * len(tokens))
    for name, values in tensors.items():
        array, kind = values if isinstance(values, tuple) else (values, None)
        data = array if kind is None else gguf.quants.quantize(array, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
