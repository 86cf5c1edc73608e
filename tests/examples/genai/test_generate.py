"""Heads inside onnxruntime-genai: a small model of random weights, beside the same one with its own output layer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from shortlist_exporter.inputs.sources import Dense
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.clients.case import ROOT, python_of
from tests.support.layers import make_contexts, make_head

CLASSES, DIM, LENGTH = 700, 64, 16
TOKENS = [[0, 5, 9, 40], [0, 7, 300, 21]]
pytestmark = pytest.mark.slow
CONTINUE = """
import json, sys
import numpy as np, onnxruntime_genai, shortlist
from examples.genai.generate import continue_texts, make_generator
own, headless, bundle, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
tokens, head = np.array(json.loads(sys.argv[5]), np.int32), shortlist.load(bundle, threads=1)
texts = {}
for beams in (1, 4):
    generator = make_generator(onnxruntime_genai.Model(own), tokens, beams, length)
    while not generator.is_done():
        generator.generate_next_token()
    wanted = [generator.get_sequence(row).tolist() for row in range(len(tokens))]
    model = onnxruntime_genai.Model(headless)
    texts[beams] = [wanted, continue_texts(model, head, tokens, beams, length, exact=True)]
print(json.dumps(texts))
"""
SEARCH = """
import json, sys
import numpy as np, onnxruntime_genai, shortlist
from shortlist.integrations.onnxruntime_genai import HeadGenerator
own, headless, bundle = sys.argv[1:4]
head, cases = shortlist.load(bundle, threads=1), json.loads(sys.argv[4])
def search(folder, tokens, options, with_head):
    model = onnxruntime_genai.Model(folder)
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(batch_size=len(tokens), **options)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(np.array(tokens, np.int32))
    texts = HeadGenerator(generator, head, exact=True) if with_head else generator
    while not generator.is_done():
        texts.generate_next_token()
    return [generator.get_sequence(row).tolist() for row in range(len(tokens))]
print(json.dumps([[search(own, *case, False), search(headless, *case, True)] for case in cases]))
"""
PADDED = [
    [0, 5, 9, 40],
    [0, 7, 1, 1],
    [0, 300, 21, 1],
]  # as `encode_batch` pads texts of several lengths: 1 behind them
CASES = [
    [PADDED, {"max_length": LENGTH}],
    [PADDED, {"max_length": LENGTH, "num_beams": 4}],
    [[[0, 300, 1]], {"max_length": LENGTH}],
    [TOKENS, {"max_length": LENGTH, "repetition_penalty": 1.5}],
    [TOKENS, {"max_length": LENGTH, "repetition_penalty": 1.5, "num_beams": 4}],
    [TOKENS, {"max_length": LENGTH, "do_sample": True, "top_k": 20, "random_seed": 3, "repetition_penalty": 1.5}],
]
BUILD_OWN = ["-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu"]


def run(python: Path, *arguments: object) -> str:
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def save_small_model(folder: Path) -> np.ndarray:
    """A model of transformers with its tokenizer; its output layer [V, d]."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=CLASSES, hidden_size=DIM, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.normal_(std=0.4)
    model.save_pretrained(folder)
    words = {f"w{index}": index for index in range(CLASSES)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w0", eos_token="w1").save_pretrained(folder)
    return model.get_output_embeddings().weight.detach().numpy().copy()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The model with its own layer, the one without, and the head's bundle."""
    python, folder = python_of("genai"), tmp_path_factory.mktemp("genai")
    weight = save_small_model(folder / "model")
    head = make_head(folder, Dense(weight), make_contexts(400, DIM), method="full", options={}, certificate=False)
    run(python, *BUILD_OWN, "-i", folder / "model", "-o", folder / "own")
    run(python, "-m", "examples.genai.model", folder / "model", folder / "headless")
    return folder / "own", folder / "headless", head.folder


def test_texts_are_those_of_the_model_with_its_own_layer(folders):
    """Greedy and with beams, two texts at once, by exact answers whose log-probabilities are exact."""
    texts = json.loads(run(python_of("genai"), "-c", CONTINUE, *folders, LENGTH, json.dumps(TOKENS)).splitlines()[-1])
    for wanted, text in texts.values():
        assert text == wanted
        assert min(map(len, text)) > len(TOKENS[0])


def test_texts_behind_padding_and_with_repetition_penalty_are_those_of_the_model_with_its_own_layer(folders):
    texts = json.loads(run(python_of("genai"), "-c", SEARCH, *folders, json.dumps(CASES)).splitlines()[-1])
    for case, (wanted, text) in zip(CASES, texts, strict=True):
        assert text == wanted, case[1]
        assert min(map(len, text)) > len(case[0][0])


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("model", ["none", "out"], "genai: there is no config.json in none: give a folder of transformers"),
        ("generate", ["none", "none", "text"], "genai: Error opening none/genai_config.json"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, module, arguments, message):
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
    command = [str(python_of("genai")), "-m", f"examples.genai.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_model_that_the_builder_does_not_know_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["NoModel"], "model_type": "none"}', "utf-8")
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
    command = [str(python_of("genai")), "-m", "examples.genai.model", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"genai: onnxruntime-genai builds no model of {tmp_path} (")


def test_a_model_that_computes_its_logits_too_is_refused(folders, tmp_path):
    options = ["--extra_options", "include_hidden_states=true"]
    run(python_of("genai"), *BUILD_OWN, "-i", folders[0].parent / "model", "-o", tmp_path, *options)
    config = json.loads((tmp_path / "genai_config.json").read_text("utf-8"))
    config["model"]["decoder"]["outputs"]["hidden_states"] = "hidden_states"
    (tmp_path / "genai_config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(AssertionError, match="computes logits of its own: make it without its output layer"):
        run(python_of("genai"), "-c", SEARCH, tmp_path, tmp_path, folders[2], json.dumps(CASES[:1]))
