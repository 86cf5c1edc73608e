"""Layers that are not what a file's first matrix is: each of these was once taken wrongly, without a word."""

import json

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.inputs.sources import load_dense
from torch.nn.utils import prune

from tests.exporter.capture.tiny import save_model

from .layer import BIAS, CONTEXTS, WEIGHT, D, V, save_gguf, save_onnx, save_torch, tensors

BERT = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
}  # fmt: skip
CLASSES = 9


def save(folder, kind, settings, **more):
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, settings)(**BERT | more))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_()
    model.save_pretrained(folder)
    return model


def test_a_classifier_is_no_language_model(tmp_path):
    model = save(tmp_path, "BertForSequenceClassification", "BertConfig", num_labels=CLASSES)
    with pytest.raises(BadInput, match=r"is a classifier: choose its weight by --tensor classifier\.weight$"):
        load_dense(tmp_path)
    layer = load_dense(tmp_path, tensor="classifier.weight")
    np.testing.assert_array_equal(layer.weight, model.classifier.weight.detach().numpy())
    np.testing.assert_array_equal(layer.bias, model.classifier.bias.detach().numpy())


def test_a_classifier_has_no_soft_cap(tmp_path):
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "num_labels": CLASSES}
    save(tmp_path, "Gemma2ForSequenceClassification", "Gemma2Config", **sizes)
    assert load_dense(tmp_path, tensor="score.weight").soft_cap is None
    assert load_dense(tmp_path, tensor="model.embed_tokens.weight").soft_cap == 30


@pytest.mark.parametrize("kind", ["BertModel", "BertForNextSentencePrediction"])
def test_an_encoder_has_no_output_layer(tmp_path, kind):
    save(tmp_path, kind, "BertConfig")
    with pytest.raises(BadInput, match=rf"is a {kind}, which has no output layer: .*word_embeddings\.weight$"):
        load_dense(tmp_path)


def test_a_decoder_s_bias_behind_an_encoder(tmp_path):
    config = transformers.BertConfig(**BERT)
    model = transformers.EncoderDecoderModel(
        transformers.EncoderDecoderConfig.from_encoder_decoder_configs(config, config)
    )
    with torch.no_grad():
        model.decoder.cls.predictions.bias.normal_()
    model.save_pretrained(tmp_path)
    layer = load_dense(tmp_path, tensor="decoder.bert.embeddings.word_embeddings.weight")
    np.testing.assert_array_equal(layer.bias, model.decoder.cls.predictions.bias.detach().numpy())


def test_an_output_of_its_own_where_the_settings_say_that_it_is_tied(tmp_path):
    save(tmp_path, "BertForMaskedLM", "BertConfig")
    path = tmp_path / "model.safetensors"
    own = {"cls.predictions.decoder.weight": torch.randn(40, 16), "cls.predictions.decoder.bias": torch.randn(40)}
    save_file(load_file(path) | own, path)
    np.testing.assert_array_equal(load_dense(tmp_path).weight, own["cls.predictions.decoder.weight"].numpy())


def test_a_projection_of_another_part_is_no_output_layer(tmp_path):
    model = save_model(tmp_path, tie_word_embeddings=True)
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"visual.proj_out.weight": torch.ones(5, 16)}, path)
    np.testing.assert_array_equal(load_dense(tmp_path).weight, model.get_input_embeddings().weight.detach().numpy())


@pytest.mark.parametrize("load", [load_dense, load_model])
def test_an_adapter_in_the_folder_of_its_model(tmp_path, load):
    save_model(tmp_path)
    assert load(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(BadInput, match="holds an adapter: merge it"):
        load(tmp_path)


@pytest.mark.parametrize("weight", ["lm_head.weight", "lm_head.base_layer.weight"])
@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_an_adapter_beside_a_weight_by_its_name(tmp_path, weight, ending):
    path, values = tmp_path / f"x.{ending}", {weight: torch.ones(V, D), "lm_head.lora_A.weight": torch.ones(2, D)}
    save_file(values, path) if ending == "safetensors" else save_torch(path, values)
    with pytest.raises(BadInput, match=r"holds lm_head\.lora_A\.weight, which an adapter adds to lm_head"):
        load_dense(path, tensor=weight)


def test_a_file_of_a_folder_lacks_the_folder_s_settings(tmp_path):
    save(tmp_path, "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8)
    with pytest.raises(
        BadInput, match=r"config\.json has final_logit_softcapping 30\.0, which .* lacks: give the folder"
    ):
        load_dense(tmp_path / "model.safetensors", tensor="model.embed_tokens.weight")


def test_a_file_whose_bias_has_another_name(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(tensors(embeddings__weight=WEIGHT, cls__predictions__bias=BIAS), path)
    with pytest.raises(
        BadInput, match=r"holds cls\.predictions\.bias, which the logits by embeddings\.weight may need"
    ):
        load_dense(path, tensor="embeddings.weight")
    layer = load_dense(path, tensor="embeddings.weight", bias_tensor="cls.predictions.bias")
    np.testing.assert_array_equal(layer.bias, BIAS)


def test_a_scale_that_is_a_tensor(tmp_path):
    save_file(tensors(weight=WEIGHT, logit_scale=np.float32(2.6)), tmp_path / "x.safetensors")
    with pytest.raises(BadInput, match=r"logit_scale in .* is a tensor beside the weight: give its value, of CLIP"):
        load_dense(tmp_path / "x.safetensors")


def test_kernels_are_transposed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(tensors(**{"head/kernel": WEIGHT.T.copy(), "head/bias": BIAS}), path)
    layer = load_dense(path, tensor="head/kernel")
    np.testing.assert_array_equal(layer.weight, WEIGHT)
    np.testing.assert_array_equal(layer.bias, BIAS)


@pytest.mark.parametrize("shape", [(1, V), (V, 1)])
def test_a_bias_of_one_row_or_column(tmp_path, shape):
    save_file(tensors(weight=WEIGHT, bias=BIAS.reshape(shape)), tmp_path / "x.safetensors")
    np.testing.assert_array_equal(load_dense(tmp_path / "x.safetensors").bias, BIAS)


PARTS = {
    "spectral_norm": torch.nn.utils.spectral_norm,
    "weight_norm": torch.nn.utils.parametrizations.weight_norm,
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_a_weight(tmp_path, kind):
    state = PARTS[kind](torch.nn.Linear(D, V)).state_dict()
    matrices = [name for name, part in state.items() if part.ndim == 2]
    path = save_torch(tmp_path / "x.pt", state)
    assert matrices
    for name in matrices:
        with pytest.raises(BadInput, match="is a part of a weight, not the weight: call remove_parametrizations"):
            load_dense(path, tensor=name)


def test_a_layer_that_torch_quantised(tmp_path):
    content = {"emb.weight": torch.ones(V, D), "head._packed_params._packed_params": (torch.ones(2), None)}
    with pytest.raises(BadInput, match=r"head\._packed_params\._packed_params is a layer that torch has quantised"):
        load_dense(save_torch(tmp_path / "x.pt", content))


@pytest.mark.parametrize(
    ("architecture", "more"), [("bert", None), ("t5encoder", None), ("llama", "cls.output.weight")]
)
def test_gguf_of_encoders_and_classifiers(tmp_path, architecture, more):
    matrices = {name: (WEIGHT, gguf.GGMLQuantizationType.F32) for name in ("token_embd.weight", more) if name}
    path = save_gguf(tmp_path / "x.gguf", matrices, architecture)
    reason = f"is a classifier: choose its weight by --tensor {more}" if more else "which has no output layer"
    with pytest.raises(BadInput, match=reason):
        load_dense(path)
    np.testing.assert_array_equal(load_dense(path, tensor=more or "token_embd.weight").weight, WEIGHT)


PRODUCT = ("MatMul", ["x", "W"], "p", {})
LAYER = {
    "W": WEIGHT.T,
    "b": BIAS,
    "cap": np.float32(3),
    "from": np.array([0]),
    "to": np.array([9]),
    "last": np.array([-1]),
}


@pytest.mark.parametrize("is_capped", [False, True])
def test_onnx_what_follows_a_use_of_the_shape_alone(tmp_path, is_capped):
    """As torch writes `logits.view(...)`: the bias or soft-cap behind it was left out."""
    shape = [PRODUCT, ("Shape", ["p"], "s", {}), ("Reshape", ["p", "s"], "r", {})]
    cap = [("Div", ["r", "cap"], "d", {}), ("Tanh", ["d"], "t", {}), ("Mul", ["t", "cap"], "y", {})]
    path = save_onnx(tmp_path / "x.onnx", [*shape, *(cap if is_capped else [("Add", ["r", "b"], "y", {})])], LAYER)
    layer = load_dense(path)
    logits = CONTEXTS @ WEIGHT.T
    wanted = 3 * np.tanh(logits / 3) if is_capped else logits + BIAS
    np.testing.assert_allclose(layer.module.logits(torch.from_numpy(CONTEXTS)).numpy(), wanted, rtol=1e-4, atol=1e-4)


CHANGES = {
    "a slice": ("Slice", ["p", "from", "to", "last"], "y", {}),
    "another sign": ("Neg", ["p"], "y", {}),
    "a product by what is computed": ("Mul", ["p", "x"], "y", {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_onnx_what_changes_the_logits_of_a_weight_chosen(tmp_path, change):
    path = save_onnx(tmp_path / "x.onnx", [PRODUCT, CHANGES[change]], LAYER)
    with pytest.raises(BadInput, match=rf"the {CHANGES[change][0]} that makes y .* is not a bias, a positive scale or"):
        load_dense(path, tensor="W")


def test_onnx_what_is_added_behind_a_softmax(tmp_path):
    path = save_onnx(
        tmp_path / "x.onnx", [PRODUCT, ("LogSoftmax", ["p"], "l", {}), ("Add", ["l", "b"], "y", {})], LAYER
    )
    with pytest.raises(BadInput, match="has no MatMul or Gemm by constant weights before its outputs: choose"):
        load_dense(path)


@pytest.mark.parametrize(("ending", "mending"), [("npz", "kernels transposed"), ("vec", "vectors as .npy"), ("db", "")])
def test_endings_that_are_not_read(tmp_path, ending, mending):
    (tmp_path / f"x.{ending}").write_bytes(b"x")
    with pytest.raises(BadInput, match=rf"must end in .*, or be a Hugging Face folder.*{mending}"):
        load_dense(tmp_path / f"x.{ending}")
