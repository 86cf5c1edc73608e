"""A small model of random weights, and a head that computes all its logits."""

import pytest
import torch
from shortlist_exporter.inputs.sources import Dense
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.layers import make_contexts, make_head

CLASSES, DIM = 300, 16


@pytest.fixture(scope="package")
def model():
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=CLASSES, hidden_size=DIM, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="package")
def head(model, tmp_path_factory):
    dense = Dense(model.get_output_embeddings().weight.detach().numpy().copy())
    return make_head(
        tmp_path_factory.mktemp("head"), dense, make_contexts(400, DIM), method="full", options={}, certificate=False
    )
