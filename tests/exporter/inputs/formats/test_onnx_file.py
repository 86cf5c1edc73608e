"""The layer in ONNX files."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.inputs.sources import load_dense

from tests.support.layers import logits_of

from .layer import BIAS, CONTEXTS, SPELLINGS, WEIGHT, D, V, check, save_onnx


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("outside", [False, True])
def test_onnx_spellings(tmp_path, spelling, outside):
    nodes, weight = SPELLINGS[spelling]
    where = {"save_as_external_data": True, "location": "x.data", "size_threshold": 0} if outside else {}
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": weight, "b": BIAS}, **where)
    assert (tmp_path / "x.data").exists() == outside
    check(load_dense(path))


def test_onnx_external_data_are_hashed_and_missed(tmp_path):
    nodes, weight = SPELLINGS["gemm"]
    where = {"save_as_external_data": True, "location": "x.data", "size_threshold": 0}
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": weight, "b": BIAS}, **where)
    data, first = (tmp_path / "x.data").read_bytes(), load_dense(path).sha256
    damage = bytearray(data)
    damage[0] ^= 1
    (tmp_path / "x.data").write_bytes(damage)
    assert load_dense(path).sha256 != first
    (tmp_path / "x.data").write_bytes(data[:100])
    with pytest.raises(BadInput, match=r"of .*x\.onnx cannot be read"):
        load_dense(path)
    (tmp_path / "x.data").unlink()
    with pytest.raises((BadInput, NotFound), match=r"x\.onnx"):
        load_dense(path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_onnx_half_precision(tmp_path, dtype):
    half = torch.tensor(WEIGHT.T.copy()).to(getattr(torch, dtype))
    nodes = [("Cast", ["W"], "w", {"to": TensorProto.FLOAT}), ("MatMul", ["x", "w"], "y", {})]
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": WEIGHT.T})
    model = onnx.load(path)
    code = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    raw = half.contiguous().view(torch.int16).numpy().tobytes()
    model.graph.initializer[0].CopyFrom(helper.make_tensor("W", code, [D, V], raw, raw=True))
    onnx.save(model, path)
    check(load_dense(path), bias=False, dtype=dtype, weight=half.T.float().numpy())


@pytest.mark.parametrize("name", [None, "W"])
def test_onnx_of_a_bias_that_is_subtracted(tmp_path, name):
    nodes = [("MatMul", ["x", "W"], "p", {}), ("Sub", ["p", "b"], "y", {})]
    check(load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": WEIGHT.T, "b": -BIAS}), tensor=name))
    backwards = [nodes[0], ("Sub", ["b", "p"], "y", {})]
    path = save_onnx(tmp_path / "backwards.onnx", backwards, {"W": WEIGHT.T, "b": BIAS})
    with pytest.raises(BadInput, match=r"the Sub that makes y .* is not a bias"):
        load_dense(path, tensor=name)


def test_onnx_scale_and_cap_give_the_model_s_logits(tmp_path):
    nodes = [
        ("Gemm", ["x", "W", "b"], "p", {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ("Mul", ["p", "s"], "q", {}),
        ("Div", ["q", "c"], "r", {}),
        ("Tanh", ["r"], "t", {}),
        ("Mul", ["c", "t"], "y", {}),
    ]
    initializers = {"W": WEIGHT, "b": BIAS, "s": np.float32([3]), "c": np.float32([5])}
    path = save_onnx(tmp_path / "x.onnx", nodes, initializers)
    dense = load_dense(path)
    assert (dense.logit_scale, dense.soft_cap) == (pytest.approx(1.5), pytest.approx(5))
    expected = ReferenceEvaluator(str(path)).run(None, {"x": CONTEXTS})[0]
    np.testing.assert_allclose(logits_of(dense, CONTEXTS), expected, atol=1e-5)


def test_onnx_last_of_two_layers(tmp_path):
    nodes = [
        ("MatMul", ["x", "U"], "h", {}),
        ("Relu", ["h"], "a", {}),
        ("MatMul", ["a", "W"], "p", {}),
        ("Add", ["p", "b"], "y", {}),
    ]
    initializers = {"U": np.eye(D, dtype=np.float32), "W": WEIGHT.T, "b": BIAS, "E": WEIGHT[::-1]}
    path = save_onnx(tmp_path / "x.onnx", nodes, initializers)
    check(load_dense(path))
    check(load_dense(path, tensor="W"))
    np.testing.assert_array_equal(load_dense(path, tensor="U").weight, np.eye(D))
    check(load_dense(path, tensor="E"), bias=False, weight=WEIGHT[::-1])
    check(load_dense(path, tensor="W", bias_tensor="b"))
    with pytest.raises(
        BadInput, match=r"no initializer or constant 'Z': choose by --tensor among U \[32, 32\], W \[32, 12\]"
    ):
        load_dense(path, tensor="Z")


def test_onnx_weights_that_are_constants_are_named_and_chosen(tmp_path):
    values = {"W": WEIGHT.T, "b": BIAS, "E": WEIGHT[::-1]}
    nodes = [
        ("Constant", [], name, {"value": numpy_helper.from_array(np.ascontiguousarray(array), name)})
        for name, array in values.items()
    ]
    path = save_onnx(tmp_path / "x.onnx", [*nodes, *SPELLINGS["matmul"][0]], {})
    check(load_dense(path))
    check(load_dense(path, tensor="W", bias_tensor="b"))
    check(load_dense(path, tensor="E", bias_tensor="b"), weight=WEIGHT[::-1])
    for names in ({"tensor": "nope"}, {"tensor": "W", "bias_tensor": "nope"}):
        with pytest.raises(BadInput, match=r"constant 'nope': choose by --tensor among W \[32, 12\], E \[12, 32\]$"):
            load_dense(path, **names)
    path = save_onnx(tmp_path / "x.onnx", [*nodes, ("Relu", ["x"], "y", {})], {})
    with pytest.raises(BadInput, match=r"before its outputs: choose by --tensor among W \[32, 12\], E \[12, 32\]$"):
        load_dense(path)


def test_onnx_without_a_matrix_says_so(tmp_path):
    path = save_onnx(tmp_path / "x.onnx", [("Relu", ["x"], "y", {})], {"b": BIAS})
    for tensor in (None, "nope"):
        with pytest.raises(BadInput, match="it holds no matrix of constants, give another model"):
            load_dense(path, tensor=tensor)


def test_onnx_with_two_heads(tmp_path):
    nodes = [("MatMul", ["x", "U"], "y", {}), ("MatMul", ["x", "W"], "logits", {})]
    initializers = {"U": WEIGHT[:4].T, "W": WEIGHT.T}
    check(load_dense(save_onnx(tmp_path / "x.onnx", nodes, initializers, "y logits")), bias=False)
    nodes[1] = ("MatMul", ["x", "W"], "z", {})
    path = save_onnx(tmp_path / "x.onnx", nodes, initializers, "y z")
    with pytest.raises(BadInput, match=r"2 output layers: choose by --tensor among U, W"):
        load_dense(path)
    check(load_dense(path, tensor="W"), bias=False)


def test_onnx_without_a_head(tmp_path):
    for nodes in (
        [("Relu", ["x"], "y", {})],
        [("MatMul", ["x", "W"], "p", {}), ("Sin", ["p"], "y", {})],
        [("MatMul", ["x", "U"], "p", {}), ("Add", ["x", "p"], "y", {})],
    ):
        path = save_onnx(tmp_path / "x.onnx", nodes, {"W": WEIGHT.T, "U": np.eye(D, dtype=np.float32)})
        with pytest.raises(BadInput, match=r"no MatMul or Gemm .* among W \[32, 12\], U \[32, 32\]"):
            load_dense(path)


@pytest.mark.parametrize(
    "nodes",
    [
        [("MatMul", ["x", "W"], "p", {}), ("Mul", ["p", "b"], "y", {})],
        [("MatMul", ["x", "W"], "p", {}), ("Div", ["s", "p"], "y", {})],
        [("MatMul", ["x", "W"], "p", {}), ("Tanh", ["p"], "q", {}), ("Add", ["q", "b"], "y", {})],
    ],
)
def test_onnx_arithmetic_that_no_layer_does(tmp_path, nodes):
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": WEIGHT.T, "b": BIAS, "s": np.float32([2])})
    with pytest.raises(BadInput, match=r"is not a bias, a positive scale or a soft-cap"):
        load_dense(path)


def test_onnx_bias_of_another_length(tmp_path):
    """It ended in a traceback of torch."""
    nodes = [("MatMul", ["x", "W"], "p", {}), ("Add", ["p", "c"], "y", {})]
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": WEIGHT.T, "c": BIAS[:7], "one": BIAS[:1]})
    for name in (None, "W"):
        with pytest.raises(BadInput, match=r"has \d+ entries for 12 rows of weight: give one for each"):
            load_dense(path, bias_tensor=name)
    np.testing.assert_array_equal(load_dense(path, bias_tensor="one").bias, BIAS[:1].repeat(V))


def test_onnx_weights_that_are_none(tmp_path):
    nodes = [("MatMul", ["x", "W"], "y", {})]
    with pytest.raises(BadInput, match=r"W in .*x\.onnx has shape \[2, 12, 32\]"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.ones((2, V, D), np.float32)}))
    with pytest.raises(BadInput, match="int64"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.ones((D, V), np.int64)}))
    with pytest.raises(BadInput, match=r"W .*NaN"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.full((D, V), np.nan, np.float32)}))


@pytest.mark.parametrize(
    ("shaping", "stored"),
    [
        ([("Reshape", ["W", "shape"], "w", {})], WEIGHT.T.reshape(-1)),
        ([("Reshape", ["W", "rows"], "w", {})], WEIGHT.T[:, :, None]),
        ([("Flatten", ["W"], "w", {})], WEIGHT.T[:, :, None]),
        ([("Squeeze", ["W", "axis"], "w", {})], WEIGHT.T[None]),
        ([("Unsqueeze", ["W", "axis"], "u", {}), ("Squeeze", ["u"], "w", {})], WEIGHT.T),
        ([("Reshape", ["W", "back"], "u", {}), ("Transpose", ["u"], "w", {"perm": [1, 0]})], WEIGHT.reshape(-1)),
    ],
)
def test_onnx_weights_that_the_graph_reshapes(tmp_path, shaping, stored):
    """They were not seen as weights."""
    numbers = {"shape": [D, V], "rows": [0, -1], "axis": [0], "back": [V, D], "one": [1, V]}
    nodes = [
        *shaping,
        ("MatMul", ["x", "w"], "p", {}),
        ("Reshape", ["b", "one"], "c", {}),
        ("Add", ["p", "c"], "y", {}),
    ]
    shapes = {name: np.array(values, np.int64) for name, values in numbers.items()}
    path = save_onnx(tmp_path / "x.onnx", nodes, {"W": stored, "b": BIAS, **shapes})
    check(load_dense(path))
    check(load_dense(path, tensor="W"))


def test_onnx_weights_in_a_shape_that_is_not_theirs(tmp_path):
    """Each ended in a traceback."""
    head = [("MatMul", ["x", "w"], "y", {})]
    for node in (("Transpose", ["W"], "w", {"perm": [1, 0]}), ("Reshape", ["W", "shape"], "w", {})):
        path = save_onnx(tmp_path / "x.onnx", [node, *head], {"W": WEIGHT[None], "shape": np.array([7, 5])})
        with pytest.raises(BadInput, match=rf"the {node[0]} that makes w in .*x\.onnx does not fit W \[1, 12, 32\]: "):
            load_dense(path)
    tensor = numpy_helper.from_array(WEIGHT, "W")
    tensor.dims[0] = 5
    path = save_onnx(tmp_path / "x.onnx", [("Constant", [], "w", {"value": tensor}), *head], {})
    with pytest.raises(BadInput, match=r"w of .*x\.onnx cannot be read as \[5, 32\]: write the model again"):
        load_dense(path)
    path = save_onnx(tmp_path / "x.onnx", [("Constant", [], "w", {"value_string": "none"}), *head], {})
    with pytest.raises(BadInput, match=r"the constant w of .*x\.onnx is not of plain numbers"):
        load_dense(path)


def test_onnx_of_nodes_that_make_no_layer(tmp_path):
    """Each ended in a traceback."""
    values = {"W": WEIGHT.T, "b": BIAS, "c": BIAS[:7]}
    for nodes, sentence in (
        ([("MatMul", ["x"], "y", {})], r"the MatMul '' of .*x\.onnx lacks inputs or outputs"),
        ([("Relu", ["x"], "r", {}), ("Gemm", ["x", "W", "r"], "y", {})], "the Gemm that makes y .* is not a bias"),
        ([("Gemm", ["x", "W", "b"], "p", {}), ("Add", ["p", "c"], "y", {})], "b and c have 12 and 7 entries"),
    ):
        with pytest.raises(BadInput, match=sentence):
            load_dense(save_onnx(tmp_path / "x.onnx", nodes, values))
