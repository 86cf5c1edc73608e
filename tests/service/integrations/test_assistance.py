"""Assisted decoding: tokens that are guessed several at a time, by another model or from the text, and compared."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from shortlist.errors import BadInput
from shortlist.integrations.transformers import Draws, attach, detach
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from tests.service.integrations.test_transformers import CLASSES, DIM, MASK, PROMPTS, make_model, make_own_head

pytestmark = pytest.mark.slow
PROMPT = PROMPTS[:1, 1:]
NEW_TOKENS = 24
SPREADS = {"shared.weight": 1.0, "lm_head.weight": 0.4}  # of a translator's weights, so that it writes several words


def perturb(model, share):
    """A copy whose weights are off by about `share`, so that it guesses most tokens and not all."""
    assistant = deepcopy(model)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in assistant.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * weight.std().nan_to_num(0) * share)
    return assistant


def make_decoder():
    return make_model(LlamaForCausalLM, LlamaConfig, tie_word_embeddings=False, num_hidden_layers=3)


def make_translator():
    """Its `forward` takes no `logits_to_keep`."""
    sizes = {"d_model": DIM, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
    tokens = {"vocab_size": CLASSES, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(**sizes, **tokens, tie_word_embeddings=False)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(std=SPREADS.get(name, 0.3))
    return model


@pytest.fixture(params=[make_decoder, make_translator])
def model(request):
    model = request.param()
    model.generation_config.eos_token_id = None
    return model


def guess_with(assistant, count):
    settings = {"num_assistant_tokens": count, "num_assistant_tokens_schedule": "constant"}
    for name, value in (settings | {"assistant_confidence_threshold": 0.0}).items():
        setattr(assistant.generation_config, name, value)
    return {"assistant_model": assistant}


def generate(model, **options):
    return model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=NEW_TOKENS, **options)


def count_calls(model):
    calls = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("count", [1, 4])
def test_a_text_is_the_same_with_an_assistant(model, tmp_path, count):
    text, assistant = generate(model, do_sample=False), perturb(model, 0.02)
    assert len(set(text[0].tolist())) > 5
    attach(model, make_own_head(tmp_path, model), exact=True)
    calls = count_calls(model)
    assert torch.equal(generate(model, do_sample=False, **guess_with(assistant, count)), text)
    assert len(calls) < NEW_TOKENS


def test_a_text_is_the_same_with_tokens_from_the_prompt(model, tmp_path):
    options = {"prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 1, "do_sample": False}
    text = generate(model, do_sample=False)
    attach(model, make_own_head(tmp_path, model), exact=True)
    assert torch.equal(generate(model, **options), text)


@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_drawn_text_is_the_same_with_an_assistant_that_draws(model, tmp_path, is_sampled):
    assistant = perturb(model, 0.02)
    attach(model, make_own_head(tmp_path / "model", model), draws=Draws(3))
    text = generate(model, do_sample=is_sampled)
    attach(assistant, make_own_head(tmp_path / "assistant", assistant), draws=Draws(3))
    calls = count_calls(model)
    assert torch.equal(generate(model, do_sample=is_sampled, **guess_with(assistant, 4)), text)
    assert len(calls) < NEW_TOKENS / 2, "an assistant with the same noise guesses most draws"
    detach(assistant)
    assert torch.equal(generate(model, do_sample=is_sampled, **guess_with(assistant, 4)), text)


@pytest.mark.parametrize("options", [{"prompt_lookup_num_tokens": 3}, {"assistant_early_exit": 1}])
def test_a_drawn_text_is_the_same_with_guesses_of_its_own(tmp_path, options):
    model = make_decoder()
    attach(model, make_own_head(tmp_path, model), draws=Draws(3))
    text = generate(model)
    assert torch.equal(generate(model, **options), text)


def test_a_draw_of_one_position_is_the_same_beside_those_of_others(tmp_path):
    drawing = make_decoder()
    attach(drawing, make_own_head(tmp_path, drawing), draws=Draws(3))
    every = drawing(PROMPTS, attention_mask=MASK, logits_to_keep=0).logits.argmax(-1)
    assert every.shape == PROMPTS.shape
    for count in range(1, PROMPTS.shape[1]):
        last = drawing(PROMPTS, attention_mask=MASK, logits_to_keep=count).logits.argmax(-1)
        assert torch.equal(last, every[:, -count:])
        before = drawing(PROMPTS[:, :count], attention_mask=MASK[:, :count]).logits.argmax(-1)
        assert torch.equal(before[:, 0], every[:, count - 1])
    with pytest.raises(BadInput, match="give their number as logits_to_keep"):
        drawing(PROMPTS, attention_mask=MASK, logits_to_keep=torch.tensor([0, 2]))
