"""Heads inside `generate`: small models of random weights, and a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from shortlist.errors import BadInput
from shortlist.integrations.transformers import Draws, attach, detach
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.inputs.sources import Contexts, Dense
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from tests.support.layers import make_contexts, make_head

CLASSES, DIM, CAP = 700, 32, 5.0
pytestmark = pytest.mark.slow
SIZES = {
    "vocab_size": CLASSES, "hidden_size": DIM, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0,
    "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
BART_SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 48}
PROMPTS = torch.tensor([[0, 5, 9, 40], [0, 7, 300, 21], [0, 11, 12, 13]])
MASK = torch.ones_like(PROMPTS)
ASKED = {
    "greedy": {"do_sample": False},
    "beam": {"do_sample": False, "num_beams": 4},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.3},
    "no pair twice": {"do_sample": False, "no_repeat_ngram_size": 2},
}


def make_model(kind, config, **extra):
    torch.manual_seed(3)
    model = kind(config(**SIZES | extra)).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.normal_(std=0.4)
    return model


def make_own_head(folder, model, **dense):
    weight = model.get_output_embeddings().weight.detach().numpy().copy()
    return make_head(folder, Dense(weight, **dense), make_contexts(400, DIM), method="full", options={})


def generate(model, **options):
    options = {"max_new_tokens": 12, "attention_mask": MASK} | options
    return model.generate(PROMPTS, **options)


@pytest.fixture(scope="module")
def model():
    return make_model(LlamaForCausalLM, LlamaConfig, tie_word_embeddings=False)


@pytest.fixture(scope="module")
def head(model, tmp_path_factory):
    return make_own_head(tmp_path_factory.mktemp("head"), model)


@pytest.fixture
def bridge(model, head):
    attach(model, head, k=16)
    yield model
    detach(model)


@pytest.mark.parametrize("name", ASKED)
def test_generate_goes_on_with_the_head(model, head, name):
    wanted = generate(model, **ASKED[name])
    attach(model, head, k=16)
    try:
        torch.testing.assert_close(generate(model, **ASKED[name]), wanted, rtol=0, atol=0)
    finally:
        detach(model)
    torch.testing.assert_close(generate(model, **ASKED[name]), wanted, rtol=0, atol=0)


def test_logits_are_log_probabilities_of_the_last_position(model, head, bridge):
    scores = bridge(PROMPTS, attention_mask=MASK).logits
    assert scores.shape == (3, 1, CLASSES)
    torch.testing.assert_close(scores.log_softmax(-1), scores)
    detach(model)
    wanted = model(PROMPTS, attention_mask=MASK).logits[:, -1].log_softmax(-1)
    attach(model, head, k=16)
    best = wanted.topk(16)
    torch.testing.assert_close(scores[:, 0].gather(1, best.indices), best.values, rtol=0, atol=1e-4)
    rest = scores[:, 0].scatter(1, best.indices, torch.nan)
    assert all(len(row[~row.isnan()].unique()) == 1 for row in rest)


def test_greedy_and_beam_search_write_no_row_of_all_classes(bridge):
    for name in ("greedy", "beam", "beams"):
        generate(bridge, **ASKED[name])
    assert len(bridge.shortlist_bridge.memory.memory) == 0
    generate(bridge, **ASKED["no pair twice"])
    assert len(bridge.shortlist_bridge.memory.memory) == 3


def test_as_many_positions_as_are_asked_for(bridge):
    scores = bridge(PROMPTS, attention_mask=MASK, logits_to_keep=3).logits
    assert scores.shape == (3, 3, CLASSES)
    torch.testing.assert_close(bridge(PROMPTS, attention_mask=MASK).logits[:, 0], scores[:, 2])


def test_sampling_by_generate_draws_from_the_k_best_and_the_rest(bridge):
    torch.manual_seed(0)
    texts = generate(bridge, do_sample=True, temperature=0.7, num_return_sequences=5)
    assert texts.shape[0] == 15
    assert len({tuple(text.tolist()) for text in texts}) > 5


def draw(model, head, prompts, mask, seed, **options):
    attach(model, head, draws=Draws(seed, temperature=0.8))
    try:
        return model.generate(prompts, attention_mask=mask, max_new_tokens=8, do_sample=True, top_k=2, **options)
    finally:
        detach(model)


def test_exact_draws_are_those_of_the_head(model, head):
    texts = draw(model, head, PROMPTS, MASK, 5)
    states = model.model(texts[:, :-1], attention_mask=torch.ones_like(texts[:, :-1])).last_hidden_state
    for step in range(4):
        contexts = states[:, 3 + step].detach().numpy()
        wanted = head.sample(contexts, [5, 6, 7], 4 + step, 0.8).ids[:, 0]
        live = (texts[:, 4 : 4 + step] != 1).all(dim=1).numpy()
        assert texts[live, 4 + step].tolist() == wanted[live].tolist()


def test_a_text_is_drawn_alike_in_any_batch_and_behind_padding(model, head):
    whole = draw(model, head, PROMPTS, MASK, [5, 6, 7])
    for row in range(3):
        alone = draw(model, head, PROMPTS[row : row + 1], MASK[row : row + 1], 5 + row)
        assert alone[0].tolist() == whole[row][: alone.shape[1]].tolist()
    padded = torch.cat([torch.zeros(3, 2, dtype=torch.int64), PROMPTS], dim=1)
    mask = torch.cat([torch.zeros(3, 2, dtype=torch.int64), MASK], dim=1)
    behind = draw(model, head, padded, mask, [5, 6, 7])
    assert behind[:, 2:].tolist() == whole.tolist()


@pytest.mark.parametrize("options", [{"cache_implementation": "static"}, {"use_cache": False}])
def test_a_text_is_drawn_alike_by_any_cache_behind_padding(model, head, options):
    padded, mask = (torch.nn.functional.pad(each, (2, 0)) for each in (PROMPTS, MASK))
    wanted = draw(model, head, padded, mask, 5)
    assert draw(model, head, padded, mask, 5, **options).tolist() == wanted.tolist()


def test_embeddings_are_counted_like_tokens(model, head):
    embeddings = model.get_input_embeddings()(PROMPTS)
    wanted = draw(model, head, PROMPTS, MASK, 5)[:, 4:]
    for mask in (MASK, None):
        assert draw(model, head, None, mask, 5, inputs_embeds=embeddings).tolist() == wanted.tolist()


def test_a_decoder_behind_an_encoder_draws_by_its_own_positions(tmp_path):
    """The encoder's mask does not grow: by its length all tokens of a text would share their noise."""
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in BART_SIZES.items()}
    model = make_model(BartForConditionalGeneration, BartConfig, d_model=DIM, forced_eos_token_id=None, **sizes)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.1)  # of all words, so that noise decides
    head = make_own_head(tmp_path, model)
    texts = draw(model, head, PROMPTS, MASK, 5)
    states = model.model(PROMPTS, attention_mask=MASK, decoder_input_ids=texts[:, :-1]).last_hidden_state
    for step in range(3):
        wanted = head.sample(states[:, step].detach().numpy(), [5, 6, 7], 1 + step, 0.8).ids[:, 0]
        live = (texts[:, 1 : 1 + step] != 1).all(dim=1).numpy()
        assert texts[live, 1 + step].tolist() == wanted[live].tolist()


@pytest.fixture
def drawing(model, head):
    attach(model, head, draws=Draws(1))
    yield model
    detach(model)
    assert "generate" not in vars(model)


def test_draws_without_tokens_to_count_are_refused(drawing):
    with pytest.raises(BadInput, match="give input_ids"):
        drawing()


def test_seeds_are_one_or_one_for_each_row(model, head):
    assert (
        draw(model, head, PROMPTS, MASK, np.int64(5)).tolist() == draw(model, head, PROMPTS, MASK, [5, 6, 7]).tolist()
    )
    for seeds, reason in (
        ([5], "1 seeds for 3 rows"),
        ([5, 6, 7, 8], "4 seeds for 3 rows"),
        ("5", "give a whole number"),
    ):
        with pytest.raises(BadInput, match=reason):
            draw(model, head, PROMPTS, MASK, seeds)


@pytest.mark.parametrize("configuration", [{}, {"generation_config": GenerationConfig(num_beams=2)}, {"num_beams": 3}])
def test_draws_of_beams_are_refused(drawing, monkeypatch, configuration):
    monkeypatch.setattr(drawing.generation_config, "num_beams", 2)
    with pytest.raises(BadInput, match=r"not of [23] beams: give num_beams=1, or attach without draws"):
        generate(drawing, **configuration)
    assert len(generate(drawing, num_beams=1, do_sample=False)) == len(PROMPTS)


def test_soft_cap_is_not_applied_twice(tmp_path):
    model = make_model(
        Gemma2ForCausalLM, Gemma2Config, head_dim=16, final_logit_softcapping=CAP, tie_word_embeddings=False
    )
    wanted = generate(model, **ASKED["beam"], output_logits=True, return_dict_in_generate=True)
    attach(model, make_own_head(tmp_path, model, soft_cap=CAP), k=16)
    result = generate(model, **ASKED["beam"], output_logits=True, return_dict_in_generate=True)
    torch.testing.assert_close(result.sequences, wanted.sequences, rtol=0, atol=0)
    best = wanted.logits[0].log_softmax(-1).topk(16)
    torch.testing.assert_close(result.logits[0].gather(1, best.indices), best.values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [16, CLASSES])
def test_padded_rows_are_never_returned(model, tmp_path, k):
    padded = np.arange(690, CLASSES)
    wanted = model(PROMPTS, attention_mask=MASK).logits[:, -1, :690].log_softmax(-1)
    attach(model, make_own_head(tmp_path, model, padded=padded), k=k)
    try:
        scores = model(PROMPTS, attention_mask=MASK).logits[:, -1]
    finally:
        detach(model)
    best = wanted.topk(min(k, 690))
    torch.testing.assert_close(scores.gather(1, best.indices), best.values, rtol=0, atol=1e-4)
    assert scores[:, 690:].eq(-torch.inf).all()
    torch.testing.assert_close(scores.log_softmax(-1), scores)


@pytest.mark.parametrize(
    ("dense", "options", "message"),
    [
        (Dense(np.ones((CLASSES - 1, DIM), np.float32)), {}, r"is \[700, 32\] but lm was exported from \[699, 32\]"),
        (Dense(np.ones((CLASSES, 8), np.float32)), {}, r"exported from \[700, 8\]"),
        ({"logit_scale": 0.5}, {}, "logit scale 0.5, soft-cap none"),
        ({"soft_cap": 2.0}, {}, "soft-cap 2"),
        ({}, {"k": 0}, "k is 0"),
        ({}, {"k": "8"}, "give a whole number"),
        ({}, {"promise": 0.5}, "promise"),
    ],
)
def test_what_does_not_fit_is_refused(model, tmp_path, dense, options, message):
    if isinstance(dense, dict):
        head = make_own_head(tmp_path, model, **dense)
    else:
        head = make_head(tmp_path, dense, make_contexts(400, dense.dim), method="full", options={})
    with pytest.raises(BadInput, match=message):
        attach(model, head, **options)
    assert generate(model).shape[0] == 3


def test_attaching_twice_and_detaching_nothing_are_refused(model, head, bridge):
    with pytest.raises(BadInput, match="attached already"):
        attach(bridge, head)
    detach(model)
    with pytest.raises(BadInput, match="has no head attached"):
        detach(model)
    attach(model, head)


def test_no_loss_is_computed(bridge):
    with pytest.raises(BadInput, match="call detach"):
        bridge(PROMPTS, labels=PROMPTS)


@pytest.mark.long
def test_a_real_model_goes_on_with_a_head_of_its_own(tmp_path):
    try:
        smollm = load_model(find_packaged_model())
    except ImportError as error:
        pytest.skip(str(error))
    text = Path("examples/text/README.md").read_text("utf-8")
    tokens = torch.tensor(smollm.tokenizer(text)["input_ids"])[:512]
    contexts = Contexts(smollm.hidden_states(tokens[None])[0].numpy())
    head = make_head(tmp_path, smollm.dense, contexts, method="full", options={}, certificate=False)
    asked = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    prompt = tokens[None, :20]
    wanted = smollm.model.generate(prompt, attention_mask=torch.ones_like(prompt), **asked)
    attach(smollm.model, head)
    found = smollm.model.generate(prompt, attention_mask=torch.ones_like(prompt), **asked)
    assert found.tolist() == wanted.tolist()
