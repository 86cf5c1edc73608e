"""Output layers of Hugging Face folders."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.inputs.sources import load_dense

from tests.exporter.capture.test_language_model import FAMILIES
from tests.exporter.capture.tiny import WORDS, save_model
from tests.support.pickles import Trap


def same(layer, expected):
    np.testing.assert_array_equal(layer.weight, expected.weight)
    np.testing.assert_array_equal(layer.padded, expected.padded)
    assert (layer.bias is None) == (expected.bias is None)
    assert layer.logit_scale == pytest.approx(expected.logit_scale)
    assert layer.soft_cap == expected.soft_cap


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


def test_a_bias_in_another_shard_than_its_weight(tmp_path):
    """Of a sharded image classifier it was left out without a word, and every answer was wrong."""
    save_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    parts = {"classifier.weight": torch.randn(WORDS, 6), "classifier.bias": torch.arange(WORDS, dtype=torch.float32)}
    for name, tensor in parts.items():
        save_file({name: tensor}, tmp_path / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in parts}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    layer = load_dense(tmp_path, tensor="classifier.weight")
    np.testing.assert_array_equal(layer.weight, parts["classifier.weight"].numpy())
    np.testing.assert_array_equal(layer.bias, parts["classifier.bias"].numpy())
    alone = tmp_path / "classifier.weight.safetensors"
    with pytest.raises(BadInput, match=r"classifier\.bias is in another file than .*index\.json: give the folder"):
        load_dense(alone, tensor="classifier.weight")
    other = tmp_path / "classifier.bias.safetensors"
    assert load_dense(alone, other, "classifier.weight", "classifier.bias").bias is not None


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


MASKED_MODELS = {
    "Albert": {"embedding_size": 4},
    "Bert": {},
    "DistilBert": {"dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 16},
    "Electra": {"embedding_size": 4},
    "ModernBert": {
        name: 0 for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    },
    "Roberta": {},
}


@pytest.mark.parametrize("family", MASKED_MODELS)
def test_a_folder_of_a_masked_language_model_has_its_bias(tmp_path, family):
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = getattr(transformers, f"{family}Config")(**sizes | MASKED_MODELS[family], intermediate_size=16)
    model = getattr(transformers, f"{family}ForMaskedLM")(config)
    layer = model.get_output_embeddings()
    torch.nn.init.normal_(layer.bias)
    model.save_pretrained(tmp_path)
    dense = load_dense(tmp_path)
    np.testing.assert_array_equal(dense.weight, layer.weight.detach().numpy())
    np.testing.assert_array_equal(dense.bias, layer.bias.detach().numpy())


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
    with pytest.raises(
        BadInput, match=r"has no lm_head\.weight and does not tie it.* among model\.embed_tokens\.weight, "
    ):
        load_dense(tmp_path)
    with pytest.raises(BadInput, match=r"no tensor 'lm_head\.weight', only model\.embed_tokens\.weight, .* more"):
        load_dense(tmp_path, tensor="lm_head.weight")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(NotFound, match=r"none of model\.safetensors, pytorch_model\.bin"):
        load_dense(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    part = tmp_path / "model-00001-of-00002.safetensors"
    part.touch()
    with pytest.raises(NotFound, match=rf"has {part.name} but no {index.name}, which says what is where: copy that"):
        load_dense(tmp_path)
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../absent.safetensors"}}))
    with pytest.raises(NotFound, match=rf"no file {tmp_path}/absent\.safetensors"):
        load_dense(tmp_path)
    index.write_text("[]")
    with pytest.raises(BadInput, match="is not an index"):
        load_dense(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match=r"config\.json .* cannot be read"):
        load_dense(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"), [({"hidden_size": 9}, "not a multiple"), ({"hidden_size": "8"}, "expected int")]
)
def test_settings_that_no_model_can_have_are_refused_with_the_reason(tmp_path, change, reason):
    save_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=rf"config\.json .* cannot be read \(.*{reason}"):
        load_dense(tmp_path)


def test_a_tokenizer_of_another_model(tmp_path):
    save_model(tmp_path, vocab_size=WORDS - 5)
    with pytest.raises(BadInput, match=f"token {WORDS - 1} but the output layer {WORDS - 5} rows"):
        load_dense(tmp_path)
