"""Layers that are more than their weight: quantised, adapted, in parts. A weight taken alone gave wrong answers."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.inputs.sources import load_dense

from tests.exporter.capture.tiny import WORDS, save_model

from .layer import WEIGHT, D, V, save_gguf, save_onnx, save_torch, tensors

GPTQ = {
    "qweight": torch.zeros(2, WORDS, dtype=torch.int32),
    "qzeros": torch.zeros(1, WORDS // 8, dtype=torch.int32),
    "scales": torch.ones(1, WORDS),
}
LORA = {"lora_A.default.weight": torch.ones(2, 16), "lora_B.default.weight": torch.ones(WORDS, 2)}
ROWS = torch.ones(WORDS, 16)
CHANGED = {  # what a folder has in the place of lm_head.weight, and what is told of it
    "gptq": (GPTQ, "qweight"),
    "fp8": ({"weight": ROWS.to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(1, 1)}, "weight_scale_inv"),
    "int8": ({"weight": ROWS.to(torch.int8), "SCB": torch.ones(WORDS)}, "SCB"),
    "an adapter": ({"base_layer.weight": ROWS, **LORA}, "base_layer.weight"),
    "an adapter beside it": ({"weight": ROWS, **LORA}, "lora_A.default.weight"),
    "parametrised": ({f"parametrizations.weight.original{i}": ROWS for i in (0, 1)}, "parametrizations"),
}


def save_changed(folder, module, kept, **settings):
    """A model whose `module` is kept as other tensors."""
    save_model(folder, **settings)
    content = {name: x for name, x in load_file(folder / "model.safetensors").items() if not name.startswith(module)}
    save_file(content | {f"{module}.{name}": x.clone() for name, x in kept.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_s_output_layer_that_is_more_than_its_weight(tmp_path, kind, tied):
    """Where the settings tie it, the embeddings were taken in its place without a word."""
    kept, told = CHANGED[kind]
    save_changed(tmp_path, "lm_head", kept, tie_word_embeddings=tied)
    with pytest.raises(
        BadInput, match=rf"holds lm_head\.{told}.*, so its output layer is quantised or adapted: save it"
    ):
        load_dense(tmp_path)
    embeddings = load_dense(tmp_path, tensor="model.embed_tokens.weight")
    assert embeddings.classes == WORDS


def test_tied_embeddings_that_are_quantised(tmp_path):
    packed = {"weight": torch.zeros(WORDS, 2, dtype=torch.uint32), "scales": ROWS[:, :1], "biases": ROWS[:, :1]}
    save_changed(tmp_path, "model.embed_tokens", packed, tie_word_embeddings=True)
    with pytest.raises(BadInput, match=r"holds model\.embed_tokens\.biases, so its output layer is quantised"):
        load_dense(tmp_path)


@pytest.mark.parametrize("kind", ["int8", "an adapter beside it", "parametrised"])
def test_capture_does_not_compute_without_a_part_of_a_layer(tmp_path, kind):
    """transformers leaves out what it does not know, and says so only in a log."""
    kept, told = CHANGED[kind]
    save_changed(tmp_path, "lm_head", kept, tie_word_embeddings=kind == "parametrised")
    with pytest.raises(BadInput, match=rf"holds lm_head\.{told}.*, which the model would be computed without: save it"):
        load_model(tmp_path)


def test_capture_leaves_out_what_belongs_to_no_layer(tmp_path):
    save_model(tmp_path)
    content = load_file(tmp_path / "model.safetensors")
    more = {"mtp.layers.0.weight": ROWS, "model.layers.0.self_attn.rotary_emb.inv_freq": ROWS[0], "lm_head.bias": ROWS}
    save_file(content | {name: x.clone() for name, x in more.items()}, tmp_path / "model.safetensors")
    assert load_model(tmp_path).dense.classes == WORDS


@pytest.mark.parametrize("load", [load_dense, load_model])
def test_an_adapter_s_folder(tmp_path, load):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(BadInput, match=r"holds an adapter: merge it into its model by peft's merge_and_unload"):
        load(tmp_path)


def test_one_of_several_gguf_files(tmp_path):
    """The embeddings of the first part were taken where the output layer was in another."""
    path = save_gguf(tmp_path / "x.gguf", {"token_embd.weight": WEIGHT}, parts=3)
    for name in (None, "token_embd.weight"):
        with pytest.raises(BadInput, match=r"is one of 3 parts of a model: join them by .*llama-gguf-split --merge"):
            load_dense(path, tensor=name)
    assert load_dense(save_gguf(tmp_path / "y.gguf", {"token_embd.weight": WEIGHT}, parts=1)).classes == V


def test_a_gguf_adapter(tmp_path):
    path = save_gguf(tmp_path / "x.gguf", {"output.weight.lora_b": WEIGHT}, file_type="adapter")
    for name in (None, "output.weight.lora_b"):
        with pytest.raises(BadInput, match=r"x\.gguf holds an adapter alone: merge it .*llama-export-lora"):
            load_dense(path, tensor=name)


def test_scales_are_not_the_only_matrix_of_a_quantised_state_dict(tmp_path):
    packed = {f"fc.{name}": x for name, x in GPTQ.items()}
    with pytest.raises(BadInput, match=r"3 matrices: choose by --tensor among fc\.qweight"):
        load_dense(save_torch(tmp_path / "x.pt", packed))
    scaled = {"fc.weight": torch.ones(V, D, dtype=torch.int8), "fc.weight_scale": torch.ones(V, 1)}
    with pytest.raises(BadInput, match=r"2 matrices: choose by --tensor among fc\.weight \[12, 32\]"):
        load_dense(save_torch(tmp_path / "y.pt", scaled))
    positions = tensors(fc__weight=WEIGHT, position_ids=np.arange(5)[None])
    assert load_dense(save_torch(tmp_path / "z.pt", positions)).classes == V


QUANTISED = {
    "DequantizeLinear": [("DequantizeLinear", ["q", "s", "z"], "w", {"axis": 1}), ("MatMul", ["x", "w"], "y", {})],
    "MatMulNBits": [("MatMulNBits", ["x", "q", "s"], "y", {"K": D, "N": V, "bits": 4, "block_size": 32})],
    "MatMulInteger": [("MatMulInteger", ["x", "q"], "p", {}), ("Mul", ["p", "s"], "y", {})],
}


@pytest.mark.parametrize("operator", QUANTISED)
def test_onnx_of_quantised_weights(tmp_path, operator):
    """Among the matrices offered was none that could be taken but the embeddings."""
    values = {"q": np.ones((D, V), np.int8), "s": np.ones(V, np.float32), "z": np.zeros(V, np.int8), "E": WEIGHT}
    path = save_onnx(tmp_path / "x.onnx", QUANTISED[operator], values)
    with pytest.raises(BadInput, match=rf"holds quantised weights \({operator}\) .* give the model from before it was"):
        load_dense(path)
    np.testing.assert_array_equal(load_dense(path, tensor="E").weight, WEIGHT)
