import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.inputs.sources import load_contexts
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    FalconH1Config,
    FalconH1ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedTokenizerFast,
)

from tests.support.layers import logits_of

from .tiny import WORDS, save_model, save_tokenizer, write_text

ATOL = 1e-4
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
FAMILIES = {
    "multiplies": (Cohere2Config, Cohere2ForCausalLM, {"logit_scale": 0.25}, (0.25, None)),
    "divides": (GraniteConfig, GraniteForCausalLM, {"logits_scaling": 8.0}, (0.125, None)),
    "another name": (FalconH1Config, FalconH1ForCausalLM, {"lm_head_multiplier": 3.0} | MAMBA, (3.0, None)),
    "soft-cap": (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 5.0, "head_dim": 8}, (1.0, 5.0)),
    "no soft-cap": (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": None, "head_dim": 8}, (1.0, None)),
    "learned positions": (GPT2Config, GPT2LMHeadModel, {}, (1.0, None)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scale_and_the_cap_that_reproduce_the_model_s_logits(tmp_path, family):
    config_class, model_class, config, (scale, cap) = FAMILIES[family]
    save_model(tmp_path, config_class, model_class, **config)
    model = load_model(tmp_path)
    assert model.dense.logit_scale == pytest.approx(scale)
    assert model.dense.soft_cap == cap
    tokens = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        expected = model.model(tokens).logits.reshape(12, -1).numpy()
    result = logits_of(model.dense, model.hidden_states(tokens).reshape(12, -1).numpy())
    np.testing.assert_allclose(result, expected, atol=ATOL)


def test_an_output_layer_that_does_more_is_refused(tmp_path, monkeypatch):
    save_model(tmp_path, GraniteConfig, GraniteForCausalLM, logits_scaling=8.0)
    monkeypatch.setattr("shortlist_exporter.capture.language_model.LOGIT_SCALE_SETTINGS", ())
    with pytest.raises(BadInput, match=r"GraniteForCausalLM is not weight, bias, scale and soft-cap alone"):
        load_model(tmp_path)


def test_missing_weights_are_not_replaced_by_random_ones(tmp_path):
    save_model(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=r"lacks 1 weights .*layers\.1\.mlp\.up_proj"):
        load_model(tmp_path)


@pytest.mark.parametrize("keep", [4, 0.5, -1])
def test_a_truncated_weights_file(tmp_path, keep):
    save_model(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(BadInput, match="cannot be loaded"):
        load_model(tmp_path)


def test_settings_that_no_model_can_have(tmp_path):
    save_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 9}))
    with pytest.raises(BadInput, match=r"cannot be loaded as a causal language model \(.*not a multiple"):
        load_model(tmp_path)


def test_a_model_s_own_code_is_neither_run_nor_asked_about(tmp_path, monkeypatch):
    save_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(BadInput, match="cannot be loaded"):
        load_model(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_pickle_of_weights_is_not_read(tmp_path):
    model = save_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="cannot be loaded"):
        load_model(tmp_path)


def test_a_folder_without_config(tmp_path):
    save_tokenizer(tmp_path)
    with pytest.raises(BadInput, match=r"no config\.json"):
        load_model(tmp_path)


def test_a_tokenizer_of_another_model(tmp_path):
    save_model(tmp_path, vocab_size=WORDS - 5)
    with pytest.raises(BadInput, match=f"token {WORDS - 1} but the output layer {WORDS - 5} rows"):
        load_model(tmp_path)


def test_ids_without_a_token_are_padding_wherever_they_are(tmp_path):
    save_model(tmp_path)
    vocabulary = {f"w{i}": i for i in range(WORDS) if i not in (7, 20)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w1"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    np.testing.assert_array_equal(model.dense.padded, [7, 20])
    assert [i for i, label in enumerate(model.make_labels()) if not label] == [7, 20]


def test_labels_keep_spaces_and_name_parts_of_characters(tmp_path):
    save_model(tmp_path)
    pieces = ["\N{LOWER ONE EIGHTH BLOCK}the", "the"] + [f"w{i}" for i in range(2, WORDS)]
    save_vocabulary(tmp_path, pieces, None)
    assert load_model(tmp_path).make_labels()[:3] == [" the", "the", "w2"]
    save_vocabulary(tmp_path, ["Ġthe", "Ċ", "Ã", *pieces[3:]], "byte level")
    assert load_model(tmp_path).make_labels()[:3] == [" the", "\n", "Ã"]


def save_vocabulary(folder, pieces, kind):
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=pieces[0]))
    if kind:
        from tokenizers import decoders

        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def test_a_beginning_of_sequence_stands_before_every_window_and_gives_no_row(tmp_path):
    save_model(tmp_path, bos_token_id=0)
    save_tokenizer(tmp_path, begin=True)
    text = write_text(tmp_path / "t.txt")
    model = load_model(tmp_path)
    capture(model, [Text(text)], tmp_path / "c.safetensors", window=8)
    contexts = load_contexts(tmp_path / "c.safetensors")
    assert 0 not in contexts.targets
    stream = model.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        expected = model.model.model(torch.tensor([[0, *stream[8:16]]])).last_hidden_state[0, 1:].numpy()
    np.testing.assert_allclose(contexts.contexts[8:16], expected, atol=ATOL)


def test_a_window_longer_than_the_model_reads(tmp_path):
    save_model(tmp_path)
    text = write_text(tmp_path / "t.txt")
    with pytest.raises(BadInput, match=r"--window 65 is over the 64 tokens"):
        capture(load_model(tmp_path), [Text(text)], tmp_path / "c.safetensors", window=65)


def test_loading_says_nothing(tmp_path, capfd):
    save_model(tmp_path)
    capfd.readouterr()
    load_model(tmp_path)
    sys.stdout.flush()
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_is_no_model(tmp_path):
    save_tokenizer(tmp_path)
    with pytest.raises(BadInput, match=str(tmp_path)):
        load_model(tmp_path)


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"no weights here" * 10)
    with pytest.raises(BadInput, match=r"m\.gguf"):
        load_model(tmp_path / "m.gguf")
