"""Beam search by Hugging Face's rule, against its own `generate` over a small model."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
import torch
from shortlist.decoding.finish import HuggingFace
from shortlist_exporter.inputs.sources import Dense
from transformers import GPT2Config, GPT2LMHeadModel

from tests.support.layers import make_contexts, make_head

pytestmark = pytest.mark.slow

CLASSES, DIM, BEAM, LENGTH, END, START = 30, 16, 4, 8, 1, 0
STARTS = [2, 3, 4]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=CLASSES, n_embd=DIM, n_layer=1, n_head=2, n_positions=32, bos_token_id=START, eos_token_id=END,
        tie_word_embeddings=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.6)
        model.transformer.wte.weight.normal_(std=1.0)
    return model


@pytest.fixture(scope="module")
def head(model, tmp_path_factory):
    dense = Dense(model.lm_head.weight.detach().numpy().copy())
    return make_head(tmp_path_factory.mktemp("head"), dense, make_contexts(400, DIM), method="full", options={})


def make_step(model):
    """A decoder that reads the whole text again at every step; its state is the text of each row."""

    @torch.inference_mode()
    def step(state, tokens, parents):
        text = np.concatenate([state[parents], tokens[:, None]], axis=1)
        return model.transformer(torch.from_numpy(text)).last_hidden_state[:, -1].numpy(), text

    return step


CASES = {
    "plain": ({}, {}, {}),
    "early": ({"early_stopping": True}, {}, {"early_stopping": True}),
    "never": ({"early_stopping": "never"}, {}, {"early_stopping": "never"}),
    "short ones": ({"length_penalty": 0.0}, {}, {"length_penalty": 0.0}),
    "long ones": ({"length_penalty": 2.0}, {}, {"length_penalty": 2.0}),
    "longest ones": (
        {"length_penalty": 2.0, "early_stopping": "never"},
        {},
        {"length_penalty": 2.0, "early_stopping": "never"},
    ),
    "no repeated pair": ({}, {"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
    "suppressed": ({}, {"suppressed": [[5], [6, 7]]}, {"bad_words_ids": [[5], [6, 7]]}),
    "minimum length": ({}, {"min_length": 4}, {"min_new_tokens": 4}),
    "repetition penalty": (
        {},
        {"repetition_penalty": 1.5, "suppressed": [[2], [3], [4]]},  # starts, which `generate` counts as repeated
        {"repetition_penalty": 1.5, "bad_words_ids": [[2], [3], [4]]},
    ),
    "greedy": ({}, {"beam": 1, "n_best": 1}, {"num_beams": 1, "num_return_sequences": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_searches_equal_generate(model, head, name):
    rule, ours, theirs = CASES[name]
    options = {"beam": BEAM, "n_best": 3, "eos": [END], "max_length": LENGTH, "finish": HuggingFace(**rule)} | ours
    found = shortlist.beam_search(make_step(model), head, np.empty((3, 0), np.int64), STARTS, **options)
    asked = {"num_beams": BEAM, "num_return_sequences": 3, "max_new_tokens": LENGTH, "do_sample": False} | theirs
    result = model.generate(
        torch.tensor(STARTS)[:, None],
        attention_mask=torch.ones(3, 1, dtype=torch.int64),
        pad_token_id=END,
        return_dict_in_generate=True,
        output_scores=True,
        **asked,
    )
    hypotheses = [each for best in found for each in best]
    expected = result.sequences[:, 1:].tolist()
    assert len(hypotheses) == len(expected)
    for hypothesis, ids in zip(hypotheses, expected, strict=True):
        tokens = [*hypothesis.tokens, *([] if hypothesis.end is None else [hypothesis.end])]
        assert ids[: len(tokens)] == tokens
        assert set(ids[len(tokens) :]) <= {END}
    if name != "greedy":  # which has no scores of sequences
        scores = [each.score for each in hypotheses]
        np.testing.assert_allclose(scores, result.sequences_scores.numpy(), atol=1e-5)
