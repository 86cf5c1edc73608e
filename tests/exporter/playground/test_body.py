import numpy as np
import pytest
import torch
from shortlist.errors import BadInput

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4


def test_the_context_is_what_the_model_s_output_layer_is_given(body, language_model):
    wanted = language_model.hidden_states(torch.tensor([[4, 8, 2]]))[0, -1].numpy()
    np.testing.assert_allclose(body.read("w4 w8", [2])[0], wanted, atol=TOLERANCE)


def test_reading_on_is_reading_anew_whatever_was_read_before(body):
    assert body.goes_on
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 40, 6).tolist()
    for _ in range(40):
        keep = int(rng.integers(0, len(tokens) + 1))
        tokens = [*tokens[:keep], *rng.integers(1, 40, int(rng.integers(1, 8))).tolist()][:30]
        np.testing.assert_allclose(body.read("", tokens), body.read_anew(tokens), atol=TOLERANCE)
        np.testing.assert_array_equal(body.read("", tokens), body.read("", tokens))


def test_a_refused_text_leaves_the_next_one_right(body):
    body.read("w1 w2 w3", [])
    with pytest.raises(BadInput, match="the text has 65 tokens"):
        body.read("w1 w2 w3", [4] * 62)
    np.testing.assert_allclose(body.read("w1 w2", [5]), body.read_anew([1, 2, 5]), atol=TOLERANCE)


def test_a_model_that_cannot_go_on_reads_anew(language_model, monkeypatch):
    from shortlist_exporter.playground import body

    def fail(*_):
        raise TypeError

    monkeypatch.setattr(body.Body, "read_on", fail)
    other = body.Body(language_model)
    assert not other.goes_on
    np.testing.assert_allclose(other.read("w1 w2", []), other.read_anew([1, 2]), atol=TOLERANCE)


def test_only_heads_of_its_own_layer_fit(body, head, promise_head):
    assert body.has_head(head)
    assert not body.has_head(promise_head)


def test_a_layer_of_the_same_sizes_does_not_fit(body, tmp_path):
    from tests.exporter.playground.site import CLASSES
    from tests.support.layers import make_dense, make_head

    assert not body.has_head(make_head(tmp_path, make_dense(CLASSES, 16), method="full", options={}))


def test_labels_are_the_tokens(body):
    assert body.labels[7] == "w7"
    assert body.labels[-1] is None
