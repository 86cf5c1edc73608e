"""A model that a head is attached to: saved, cast, used by several threads, drawn from with options of `generate`."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from shortlist.errors import BadInput
from shortlist.integrations.draws import check_options
from shortlist.integrations.transformers import Draws, attach, detach
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tests.service.integrations.test_transformers import PROMPTS, generate, make_model, make_own_head

pytestmark = pytest.mark.slow
THREADS, TEXTS = 4, 40
SWITCH_SECONDS = 1e-5  # between threads, so that they meet in every step


@pytest.fixture
def model():
    return make_model(LlamaForCausalLM, LlamaConfig, tie_word_embeddings=False)


@pytest.fixture
def head(model, tmp_path):
    return make_own_head(tmp_path, model)


def test_a_model_is_saved_with_its_output_layer(model, head, tmp_path):
    wanted = model.get_output_embeddings().weight.detach().clone()
    attach(model, head)
    assert "lm_head.weight" in model.state_dict()
    model.save_pretrained(tmp_path / "saved")
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(saved.get_output_embeddings().weight.detach(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("copy", [deepcopy, pickle.dumps])
def test_a_model_is_not_copied_with_a_head(model, head, copy):
    attach(model, head)
    with pytest.raises(BadInput, match=r"neither copied nor pickled: call detach\(model\) first"):
        copy(model)
    detach(model)
    copy(model)


def test_a_model_that_is_cast_has_its_output_layer_cast(model, head):
    attach(model, head)
    model.to(torch.bfloat16)
    assert generate(model).shape[0] == len(PROMPTS)
    detach(model)
    assert model.get_output_embeddings().weight.dtype == torch.bfloat16
    assert generate(model).shape[0] == len(PROMPTS)


def continue_prompt(model, index):
    """The text behind one prompt or all, by the k best alone or by written scores."""
    rows = PROMPTS[index % 3 : index % 3 + 1] if index % 2 else PROMPTS
    options = {"no_repeat_ngram_size": 2 * (index % 5 == 0), "max_new_tokens": 12, "do_sample": False}
    return model.generate(rows, attention_mask=torch.ones_like(rows), **options).tolist()


def test_threads_that_generate_with_one_model_keep_apart(model, head):
    attach(model, head, k=16)
    alone = [continue_prompt(model, index) for index in range(TEXTS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            together = list(threads.map(lambda index: continue_prompt(model, index), range(TEXTS)))
    finally:
        sys.setswitchinterval(interval)
    assert together == alone


PENALTIES = [
    {"do_sample": False},
    {"do_sample": True, "top_k": 8},
    {"do_sample": False, "num_beams": 3},
    {"do_sample": False, "no_repeat_ngram_size": 2},
]


@pytest.mark.parametrize("options", PENALTIES)
def test_logits_are_penalized_for_repetition_as_without_a_head(model, head, options):
    def penalize():
        torch.manual_seed(5)
        return generate(model, repetition_penalty=1.5, max_new_tokens=24, **options).tolist()

    wanted = penalize()
    attach(model, head, k=16, exact=True, logits=True)
    assert penalize() == wanted


def test_logits_are_those_of_the_model(model, head):
    wanted = model(PROMPTS).logits[:, -1]
    attach(model, head, k=16, logits=True)
    logits, best = model(PROMPTS).logits[:, 0], wanted.topk(16)
    torch.testing.assert_close(logits.gather(1, best.indices), best.values, rtol=0, atol=1e-4)
    torch.testing.assert_close(logits.logsumexp(-1), wanted.logsumexp(-1), rtol=0, atol=1e-3)


FORBIDDING = [
    ("bad_words_ids", [[5]]),
    ("suppress_tokens", [5]),
    ("no_repeat_ngram_size", 1),
    ("min_new_tokens", 4),
    ("guidance_scale", 1.5),
    ("prefix_allowed_tokens_fn", lambda row, ids: [5, 6]),
    ("sequence_bias", [[[5], float("-inf")]]),
]


@pytest.mark.parametrize(("name", "option"), FORBIDDING)
def test_options_that_may_forbid_the_token_drawn_are_refused(model, head, name, option):
    attach(model, head, draws=Draws(1))
    with pytest.raises(BadInput, match=f"{name} may forbid the token that was drawn: leave it out"):
        generate(model, **{name: option})
    assert len(generate(model, guidance_scale=1.0, bad_words_ids=None)) == len(PROMPTS)


def test_options_of_configurations_are_refused_too(model, head):
    attach(model, head, draws=Draws(1))
    with pytest.raises(BadInput, match="no_repeat_ngram_size"):
        model.generate(PROMPTS, GenerationConfig(no_repeat_ngram_size=2))
    model.generation_config.suppress_tokens = [5]
    with pytest.raises(BadInput, match=r"suppress_tokens .* of model.generation_config too"):
        generate(model)


def test_what_is_given_first_counts():
    configuration = vars(SimpleNamespace(num_beams=4, min_length=3))
    check_options([{"num_beams": 1, "min_length": 0}, configuration])
    with pytest.raises(BadInput, match="not of 4 beams"):
        check_options([{"num_beams": None, "min_length": 0}, configuration])
