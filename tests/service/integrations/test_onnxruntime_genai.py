"""Heads inside onnxruntime-genai, by a generator that stands in for its own; tests/examples/genai has the real one."""

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.integrations.onnxruntime_genai import HeadGenerator

from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

TEXTS, LENGTH = 3, 5
LAST = np.array([4, 0, 2])  # the position of each text's last token; padding is behind it


class Generator:
    """What `HeadGenerator` calls of onnxruntime_genai.Generator."""

    def __init__(self, states, classes, behind):
        self.states, self.scores, self.tokens = states, None, states.shape[1]
        self.logits = np.broadcast_to(behind[:, None, None], (len(states), 1, classes)).astype(np.float32)

    def token_count(self):
        return self.tokens

    def get_logits(self):
        return self.logits

    def get_output(self, name):
        return {"hidden_states": self.states}[name]

    def set_logits(self, scores):
        self.scores = scores.copy()

    def generate_next_token(self):
        self.tokens += 1


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("head"), make_dense(), method="full", options={})


def make_generator(head, behind):
    states = make_contexts(TEXTS * LENGTH).contexts.reshape(TEXTS, LENGTH, -1)
    return Generator(states, head.manifest.classes, behind)


def test_a_text_goes_on_from_its_own_last_token(head):
    generator = make_generator(head, LAST - (LENGTH - 1))
    HeadGenerator(generator, head, k=4, exact=True).generate_next_token()
    contexts = generator.states[np.arange(TEXTS), LAST]
    assert generator.scores[:, 0].argmax(axis=1).tolist() == head.topk(contexts, 1, exact=True).ids[:, 0].tolist()
    assert generator.tokens == LENGTH + 1


@pytest.mark.parametrize("k", [1, 4, 64])
def test_scores_of_the_best_are_logits(head, k):
    generator = make_generator(head, np.zeros(TEXTS))
    HeadGenerator(generator, head, k=k, exact=True).generate_next_token()
    top = head.topk(generator.states[:, -1], k, exact=True, scores=True)
    scores = generator.scores[:, 0]
    np.testing.assert_allclose(np.take_along_axis(scores, top.ids, axis=1), top.scores, rtol=0, atol=1e-4)
    logprobs = np.log(np.exp(np.take_along_axis(scores, top.ids, axis=1)) / np.exp(scores).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(logprobs, top.logprobs, rtol=0, atol=1e-3)


def test_k_of_all_classes_leaves_padding_out(tmp_path):
    padded = make_head(tmp_path, make_dense(padded=np.array([5, 17])), method="full", options={})
    generator = make_generator(padded, np.zeros(TEXTS))
    HeadGenerator(generator, padded, k=CLASSES).generate_next_token()
    assert np.isneginf(generator.scores).nonzero()[2].tolist() == [5, 17] * TEXTS


@pytest.mark.parametrize(("classes", "dim"), [(CLASSES, DIM + 1), (CLASSES + 4, DIM)])
def test_another_model_is_refused(head, classes, dim):
    generator = Generator(np.zeros((1, 2, dim), np.float32), classes, np.zeros(1))
    message = rf"{classes} classes and hidden states of {dim} numbers but lm was exported from \[300, 16\]: export a"
    with pytest.raises(BadInput, match=message):
        HeadGenerator(generator, head).generate_next_token()


def test_a_model_without_hidden_states_is_refused(head, monkeypatch):
    def get_output(name):
        raise RuntimeError(f"Generator output '{name}' was not found.")

    generator = make_generator(head, np.zeros(TEXTS))
    monkeypatch.setattr(generator, "get_output", get_output)
    with pytest.raises(BadInput, match=r"gives no hidden_states .*: make it without its output layer"):
        HeadGenerator(generator, head).generate_next_token()


def test_a_generator_without_tokens_is_refused(head):
    with pytest.raises(BadInput, match="call its append_tokens first"):
        HeadGenerator(Generator(np.zeros((1, 0, DIM), np.float32), CLASSES, np.zeros(1)), head).generate_next_token()


def test_k_is_a_whole_number(head):
    with pytest.raises(BadInput, match="k is '8': give a whole number"):
        HeadGenerator(make_generator(head, np.zeros(TEXTS)), head, k="8")
