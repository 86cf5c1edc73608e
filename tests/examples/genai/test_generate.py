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


def test_texts_are_those_of_the_model_with_its_own_layer(tmp_path):
    """Greedy and with beams, two texts at once, by exact answers whose log-probabilities are exact."""
    python = python_of("genai")
    weight = save_small_model(tmp_path / "model")
    contexts = make_contexts(400, DIM)
    head = make_head(tmp_path, Dense(weight), contexts, method="full", options={}, certificate=False)
    run(python, *BUILD_OWN, "-i", tmp_path / "model", "-o", tmp_path / "own")
    run(python, "-m", "examples.genai.model", tmp_path / "model", tmp_path / "headless")
    arguments = [tmp_path / "own", tmp_path / "headless", head.folder, LENGTH, json.dumps(TOKENS)]
    texts = json.loads(run(python, "-c", CONTINUE, *arguments).splitlines()[-1])
    for wanted, text in texts.values():
        assert text == wanted
        assert min(map(len, text)) > len(TOKENS[0])
