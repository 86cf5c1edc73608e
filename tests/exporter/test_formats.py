"""The same small layer through every format."""

import json
import pickle

import gguf
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.language_model import load_model
from shortlist_exporter.sources import load_dense

from tests.exporter.test_language_model import FAMILIES
from tests.exporter.tiny import WORDS, save_model
from tests.support import logits_of

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


# torch and safetensors


def tensors(**named):
    return {name.replace("__", "."): torch.tensor(values) for name, values in named.items()}


def save_torch(path, content, **options):
    torch.save(content, path, **options)
    return path


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
@pytest.mark.parametrize("new", [True, False])
def test_a_state_dict(tmp_path, suffix, new):
    content = tensors(weight=WEIGHT, bias=BIAS, other=WEIGHT)
    check(load_dense(save_torch(tmp_path / f"x{suffix}", content, _use_new_zipfile_serialization=new)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_state_dict_of_half_precision(tmp_path, dtype):
    weight = torch.tensor(WEIGHT).to(dtype)
    dense = load_dense(save_torch(tmp_path / "x.pt", {"weight": weight}))
    check(dense, bias=False, dtype=str(dtype).removeprefix("torch."), weight=weight.float().numpy())


def test_the_only_matrix_with_the_bias_of_its_name(tmp_path):
    content = tensors(norm__weight=BIAS[:3], fc__weight=WEIGHT, fc__bias=BIAS)
    check(load_dense(save_torch(tmp_path / "x.pt", content)))
    check(load_dense(save_torch(tmp_path / "y.pt", {"state_dict": content, "epoch": 3})))
    check(load_dense(save_torch(tmp_path / "z.pt", torch.nn.Parameter(torch.tensor(WEIGHT)))), bias=False)


def test_tied_matrices_are_one_candidate(tmp_path):
    weight = torch.tensor(WEIGHT)
    check(load_dense(save_torch(tmp_path / "x.pt", {"embedding.weight": weight, "fc.weight": weight})), bias=False)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_tensors_by_name(tmp_path, suffix):
    content = tensors(a=WEIGHT, b__weight=WEIGHT[::-1].copy(), b__bias=BIAS[::-1].copy(), offset=BIAS)
    path = tmp_path / f"x{suffix}"
    save_torch(path, content) if suffix == ".pt" else save_file(content, path)
    check(load_dense(path, tensor="a", bias_tensor="offset"))
    check(load_dense(path, tensor="a"), bias=False)
    np.testing.assert_array_equal(load_dense(path, tensor="b.weight").bias, BIAS[::-1])
    with pytest.raises(BadInput, match=r"x\..* has no tensor 'c', only a, b\.bias, b\.weight, offset"):
        load_dense(path, tensor="c")
    with pytest.raises(BadInput, match="has no tensor 'd'"):
        load_dense(path, tensor="a", bias_tensor="d")


def test_a_bias_of_a_file_of_its_own(tmp_path):
    save_file(tensors(offset=BIAS), tmp_path / "b.safetensors")
    save_torch(tmp_path / "x.pt", tensors(weight=WEIGHT))
    check(load_dense(tmp_path / "x.pt", tmp_path / "b.safetensors", bias_tensor="offset"))
    with pytest.raises(BadInput, match=r"b\.safetensors has no tensor 'bias', only offset"):
        load_dense(tmp_path / "x.pt", tmp_path / "b.safetensors")


def test_several_matrices_are_listed_with_their_shapes(tmp_path):
    path = save_torch(tmp_path / "x.pt", tensors(a=WEIGHT, b=WEIGHT[:4], c=BIAS))
    with pytest.raises(BadInput, match=r"x\.pt has 2 matrices: choose by --tensor among a \[12, 32\], b \[4, 32\]"):
        load_dense(path)
    with pytest.raises(BadInput, match=r"x\.pt has no matrix, only c"):
        load_dense(save_torch(tmp_path / "x.pt", tensors(c=BIAS)))


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_that_would_run_code(tmp_path):
    marker = str(tmp_path / "ran")
    save_torch(tmp_path / "a.pt", {"weight": torch.tensor(WEIGHT), "trap": Trap(marker)})
    save_torch(tmp_path / "b.pt", Trap(marker), _use_new_zipfile_serialization=False)
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Trap(marker)))
    for name in "abc":
        with pytest.raises(BadInput, match=rf"{name}\.pt .*torch\.save\(model\.state_dict\(\)"):
            load_dense(tmp_path / f"{name}.pt")
    assert not (tmp_path / "ran").exists()


def test_a_whole_module_is_refused(tmp_path):
    with pytest.raises(BadInput, match="could run code"):
        load_dense(save_torch(tmp_path / "x.pt", torch.nn.Linear(2, 3)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"weight": torch.ones(2, 3, 4)}, r"weight in .*x\.pt has shape \[2, 3, 4\]"),
        ({"weight": torch.ones(2, 3).to_sparse()}, "sparse float32"),
        ({"weight": torch.ones(2, 3, dtype=torch.int8)}, "int8"),
        ({"weight": torch.tensor([[1.0], [float("nan")]])}, "first in row 1"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(3)}, "bias .* 3 entries for 2 rows"),
        ({"epoch": 3}, "holds no tensor"),
    ],
)
def test_wrong_state_dicts(tmp_path, content, words):
    with pytest.raises(BadInput, match=words):
        load_dense(save_torch(tmp_path / "x.pt", content))


# ONNX


def save_onnx(path, nodes, initializers, output="y", **options):
    """Nodes as (op, inputs, output, attributes); the input is `x`."""
    graph = helper.make_graph(
        [helper.make_node(op, names, [made], **attributes) for op, names, made, attributes in nodes],
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
    changed = bytearray(data)
    changed[0] ^= 1
    (tmp_path / "x.data").write_bytes(changed)
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
    with pytest.raises(BadInput, match=r"no initializer 'Z': choose by --tensor among U \[32, 32\], W \[32, 12\]"):
        load_dense(path, tensor="Z")


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


def test_onnx_weights_that_are_none(tmp_path):
    nodes = [("MatMul", ["x", "W"], "y", {})]
    with pytest.raises(BadInput, match=r"W in .*x\.onnx has shape \[2, 12, 32\]"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.ones((2, V, D), np.float32)}))
    with pytest.raises(BadInput, match="int64"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.ones((D, V), np.int64)}))
    with pytest.raises(BadInput, match=r"W .*NaN"):
        load_dense(save_onnx(tmp_path / "x.onnx", nodes, {"W": np.full((D, V), np.nan, np.float32)}))


# GGUF


def save_gguf(path, tensors, architecture="llama", tokens=None, types=None, **settings):
    """Tensors as arrays, or (array, type) to quantise."""
    writer = gguf.GGUFWriter(path, architecture)
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


def test_gguf(tmp_path):
    path = save_gguf(
        tmp_path / "x.gguf", {"token_embd.weight": WEIGHT[::-1].copy(), "output.weight": WEIGHT, "output.bias": BIAS}
    )
    check(load_dense(path), dtype="F32")
    check(load_dense(path, tensor="token_embd.weight"), bias=False, dtype="F32", weight=WEIGHT[::-1])
    check(load_dense(path, tensor="token_embd.weight", bias_tensor="output.bias"), dtype="F32", weight=WEIGHT[::-1])
    with pytest.raises(BadInput, match=r"no tensor 'x': choose by --tensor among token_embd\.weight \[12, 32\]"):
        load_dense(path, tensor="x")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_gguf_types(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("shortlist_exporter.formats.gguf_file.ROWS", 5)
    kind_ = gguf.GGMLQuantizationType[kind]
    dense = load_dense(save_gguf(tmp_path / "x.gguf", {"token_embd.weight": (WEIGHT, kind_)}))
    rounded = gguf.quants.dequantize(gguf.quants.quantize(WEIGHT, kind_), kind_)
    check(dense, bias=False, dtype=kind, weight=rounded)
    step = {"F16": 2e-3, "BF16": 2e-2, "Q8_0": 0.02, "Q4_0": 0.3}[kind]
    np.testing.assert_allclose(dense.weight, WEIGHT, atol=step)


def test_gguf_type_that_cannot_be_read(tmp_path, monkeypatch):
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": (WEIGHT, gguf.GGMLQuantizationType.Q8_0)})
    monkeypatch.setattr("gguf.quants._type_traits", {})
    with pytest.raises(BadInput, match=r"output\.weight in .*x\.gguf is Q8_0, which cannot be read"):
        load_dense(path)


@pytest.mark.parametrize(
    ("architecture", "settings", "expected"),
    [
        ("command-r", {"logit_scale": 0.25}, (0.25, None)),
        ("granite", {"logit_scale": 8.0}, (0.125, None)),
        ("llama", {"logit_scale": 0.0}, (1.0, None)),
        ("gemma2", {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}, (1.0, 30.0)),
    ],
)
def test_gguf_scale_and_cap(tmp_path, architecture, settings, expected):
    dense = load_dense(save_gguf(tmp_path / "x.gguf", {"token_embd.weight": WEIGHT}, architecture, **settings))
    assert (dense.logit_scale, dense.soft_cap) == expected


def test_gguf_scale_of_unknown_meaning(tmp_path):
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": WEIGHT}, "novel", logit_scale=2.0)
    with pytest.raises(BadInput, match=r"architecture novel.* logit scale"):
        load_dense(path)


def test_gguf_padding(tmp_path):
    names = ["<s>", "[PAD1]", "a", "[PAD3]", *"bcdef"]
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": WEIGHT}, tokens=names, types=[3, 1, 1, 5, 5, 1, 1, 1, 1])
    np.testing.assert_array_equal(load_dense(path).padded, [3, 9, 10, 11])


# Hugging Face


def same(found, expected):
    np.testing.assert_array_equal(found.weight, expected.weight)
    np.testing.assert_array_equal(found.padded, expected.padded)
    assert (found.bias is None) == (expected.bias is None)
    assert found.logit_scale == pytest.approx(expected.logit_scale)
    assert found.soft_cap == expected.soft_cap


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_gives_what_the_loaded_model_gives(tmp_path, family):
    config_class, model_class, config, _ = FAMILIES[family]
    save_model(tmp_path, config_class, model_class, vocab_size=WORDS + 8, **config)
    same(load_dense(tmp_path), load_model(tmp_path).dense)


@pytest.mark.parametrize("tied", [False, True])
def test_shards(tmp_path, tied):
    model = save_model(tmp_path, tie_word_embeddings=tied)
    for path in tmp_path.glob("model*.safetensors"):
        path.unlink()
    model.save_pretrained(tmp_path, max_shard_size="3KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    same(load_dense(tmp_path), load_model(tmp_path).dense)
    if not tied:
        embeddings = load_dense(tmp_path, tensor="model.embed_tokens.weight").weight
        np.testing.assert_array_equal(embeddings, model.model.embed_tokens.weight.detach().numpy())


@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_of_torch_files(tmp_path, tied):
    model = save_model(tmp_path, tie_word_embeddings=tied)
    expected = load_model(tmp_path).dense
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    same(load_dense(tmp_path), expected)


def test_a_folder_with_a_bias(tmp_path):
    save_model(tmp_path, tie_word_embeddings=False)
    content = load_file(tmp_path / "model.safetensors")
    bias = torch.arange(WORDS, dtype=torch.float32)
    save_file(content | {"lm_head.bias": bias}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load_dense(tmp_path).bias, bias.numpy())
    save_file(content | {"final_logits_bias": bias[None] + 1}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load_dense(tmp_path).bias, bias.numpy() + 1)


def test_a_folder_of_half_precision(tmp_path):
    model = save_model(tmp_path).bfloat16()
    model.save_pretrained(tmp_path)
    dense = load_dense(tmp_path)
    assert dense.dtype == "bfloat16"
    np.testing.assert_array_equal(dense.weight, model.lm_head.weight.detach().float().numpy())


def test_a_folder_without_a_tokenizer_has_no_padding(tmp_path):
    save_model(tmp_path, vocab_size=WORDS + 8)
    assert load_dense(tmp_path).padded.size == 8
    for path in tmp_path.glob("*token*"):
        path.unlink()
    assert load_dense(tmp_path).padded.size == 0


def test_a_folder_s_pickle_is_never_run(tmp_path):
    save_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Trap(str(tmp_path / "ran"))}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="could run code"):
        load_dense(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_folders_that_lack_something(tmp_path):
    with pytest.raises(BadInput, match=r"has no config\.json"):
        load_dense(tmp_path)
    save_model(tmp_path, tie_word_embeddings=False)
    content = load_file(tmp_path / "model.safetensors")
    del content["lm_head.weight"]
    save_file(content, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match=r"has no lm_head\.weight and does not tie it"):
        load_dense(tmp_path)
    with pytest.raises(BadInput, match=r"no tensor 'lm_head\.weight', only model\.embed_tokens\.weight, .* more"):
        load_dense(tmp_path, tensor="lm_head.weight")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(NotFound, match=r"none of model\.safetensors, pytorch_model\.bin"):
        load_dense(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../absent.safetensors"}}))
    with pytest.raises(NotFound, match=rf"no file {tmp_path}/absent\.safetensors"):
        load_dense(tmp_path)
    index.write_text("[]")
    with pytest.raises(BadInput, match="is not an index"):
        load_dense(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match=r"config\.json .* cannot be read"):
        load_dense(tmp_path)


def test_a_tokenizer_of_another_model(tmp_path):
    save_model(tmp_path, vocab_size=WORDS - 5)
    with pytest.raises(BadInput, match=f"token {WORDS - 1} but the output layer {WORDS - 5} rows"):
        load_dense(tmp_path)


# any file


def test_suffixes(tmp_path):
    (tmp_path / "x.h5").touch()
    with pytest.raises(BadInput, match=r"x\.h5 must end in \.safetensors, \.npy, .* Hugging Face folder"):
        load_dense(tmp_path / "x.h5")
    for name in ("x.pt", "x.onnx", "x.gguf", "folder"):
        with pytest.raises(NotFound, match=f"no file .*{name}"):
            load_dense(tmp_path / name)


@pytest.mark.parametrize("keep", [0, 3, 40, 0.5, -1])
@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".gguf"])
def test_cut_files(tmp_path, suffix, keep):
    path = tmp_path / f"x{suffix}"
    if suffix == ".pt":
        save_torch(path, tensors(weight=WEIGHT, bias=BIAS))
    elif suffix == ".onnx":
        save_onnx(path, SPELLINGS["gemm"][0], {"W": WEIGHT.T, "b": BIAS})
    else:
        save_gguf(path, {"output.weight": WEIGHT})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(BadInput, match=rf"x\{suffix}"):
        load_dense(path)


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".gguf"])
def test_files_of_another_kind(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_text("no tensors here, " * 100)
    with pytest.raises(BadInput, match=rf"x\{suffix}"):
        load_dense(path)
