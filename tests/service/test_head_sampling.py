"""Draws from a head: against the dense softmax, and against themselves."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.core.draws.noise import make_keys, make_noise
from shortlist.errors import BadInput
from shortlist.kernels.native.library import open_target

from tests.support.draws import compute_p_value
from tests.support.kernels import list_targets
from tests.support.layers import list_layers, logits_of, make_contexts, make_dense, make_head
from tests.support.proofs import proved

CLASSES, DIM, TIE = 2003, 27, 1e-4
CONTEXTS = (make_contexts(64, DIM, seed=8).contexts / 3).astype(np.float32)
POSITIONS = np.arange(64) + 17
ARGUMENTS = {
    "plain": {},
    "cold": {"temperature": 0.05},
    "hot": {"temperature": 20.0},
    "by row": {"temperature": np.linspace(0.1, 2, 64)},
    "ban": {"ban": np.arange(300)},
    "allow": {"allow": [5, 17, 900]},
    "allow many": {"allow": np.arange(0, 2003, 2), "ban": [[2, 4]] * 64},
    "bias": {"bias": {7: 6.0, 8: -3.0}},
    "nucleus": {"top_p": 0.5},
}
pytestmark = pytest.mark.usefixtures("prove_small_layers")


@pytest.fixture(params=list_layers(CLASSES))
def layer(request, tmp_path):
    dense = make_dense(CLASSES, DIM, **list_layers(CLASSES)[request.param])
    return dense, proved(tmp_path, dense, make_contexts(dim=DIM))


@pytest.fixture
def plain_head(tmp_path):
    return proved(tmp_path, make_dense(CLASSES, DIM), make_contexts(dim=DIM))


def scores_of(dense, temperature=1.0, allow=None, ban=None, bias=None, top_p=1.0):
    """Logits [64, V] in float64 over the temperature, -inf for what may not be drawn."""
    logits = logits_of(dense, CONTEXTS)
    for class_id, weight in (bias or {}).items():
        logits[:, class_id] += weight
    if allow is not None:
        logits[:, np.setdiff1d(np.arange(CLASSES), allow)] = -np.inf
    if ban is not None:
        logits[:, np.unique(ban)] = -np.inf
    scores = logits / np.broadcast_to(temperature, 64)[:, None]
    if top_p < 1:
        ordered = -np.sort(-scores, axis=1)
        powers = np.exp(ordered - ordered[:, :1])
        before = (np.cumsum(powers, axis=1) - powers) / powers.sum(axis=1, keepdims=True)
        least = np.where(before < top_p, ordered, np.inf).min(axis=1, keepdims=True)
        scores[scores < least] = -np.inf
    return scores


def check_draws(draws, scores):
    """Fail unless each draw [64, n] is the class of the largest score and noise, ties within rounding aside."""
    keys = make_keys(5, POSITIONS, draws.ids.shape[1])
    for row, some in enumerate(keys):
        for number, key in enumerate(some):
            perturbed = scores[row] + make_noise(key, np.arange(CLASSES))
            assert perturbed[draws.ids[row, number]] >= perturbed.max() - TIE * (1 + np.abs(scores[row].max()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_draw_is_the_winner_of_logits_and_noise(layer, name):
    dense, head = layer
    draws = head.sample(CONTEXTS, 5, POSITIONS, draws=20, **ARGUMENTS[name])
    check_draws(draws, scores_of(dense, **ARGUMENTS[name]))
    wanted = head.logprobs(CONTEXTS, draws.ids, exact=True)
    np.testing.assert_allclose(draws.logprobs, wanted, atol=2e-2)
    assert draws.normalizer == ("exact" if "bias" in ARGUMENTS[name] else "bounded")


@pytest.mark.slow
def test_few_classes_are_scored(plain_head):
    draws = plain_head.sample(CONTEXTS, 5, POSITIONS)
    assert np.median(draws.scored) < CLASSES / 20


@pytest.mark.slow
def test_every_target_and_every_batch_draws_the_same(layer):
    _, head = layer
    wanted = head.sample(CONTEXTS, 5, POSITIONS, 0.7, draws=3)
    for target in list_targets():
        head.certified.proofs.kernels, head.certified.proofs.threads = open_target(target), 2
        for step in (1, 7, 64):
            parts = [
                head.sample(CONTEXTS[i : i + step], 5, POSITIONS[i : i + step], 0.7, draws=3)
                for i in range(0, 64, step)
            ]
            np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), wanted.ids)
            np.testing.assert_array_equal(np.concatenate([part.logprobs for part in parts]), wanted.logprobs)


@pytest.mark.slow
def test_proofs_and_the_dense_layer_draw_the_same(plain_head):
    wanted = plain_head.sample(CONTEXTS, 5, POSITIONS, 0.7, draws=50)
    plain_head.certified = None
    dense = plain_head.sample(CONTEXTS, 5, POSITIONS, 0.7, draws=50)
    assert (dense.ids == wanted.ids).mean() > 0.999  # ties within rounding
    assert dense.normalizer == "exact"
    assert (dense.scored == CLASSES).all()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_draws_have_the_softmax_for_their_distribution(plain_head, temperature):
    contexts = CONTEXTS[:5] / 8  # of many likely classes
    draws = plain_head.sample(contexts, 11, 0, temperature, draws=4_000)
    logits = logits_of(make_dense(CLASSES, DIM), contexts) / temperature
    for row in range(5):
        assert compute_p_value(draws.ids[row], logits[row]) >= 0.001


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_many_draws_have_the_softmax_for_their_distribution(tmp_path, temperature):
    """Ten contexts, 100,000 draws of each."""
    dense = make_dense(20_000, 64)
    contexts = (make_contexts(10, 64, seed=8).contexts / 16).astype(np.float32)
    head = proved(tmp_path, dense, make_contexts(dim=64))
    draws = head.sample(contexts, 3, 0, temperature, draws=100_000)
    assert (draws.scored < 100_000 * 1000).all()
    logits = logits_of(dense, contexts) / temperature
    assert min(compute_p_value(draws.ids[row], logits[row]) for row in range(10)) >= 0.001


@pytest.mark.slow
def test_draws_of_the_k_best_are_of_these_alone_by_the_same_noise(plain_head):
    best = plain_head.topk(CONTEXTS, 5, exact=True)
    draws = plain_head.sample(CONTEXTS, 5, POSITIONS, 3.0, draws=30, top_k=5)
    scores = np.full((64, CLASSES), -np.inf)
    np.put_along_axis(scores, best.ids, best.logprobs.astype(np.float64) / 3, axis=1)
    check_draws(draws, scores)
    nucleus = plain_head.sample(CONTEXTS, 5, POSITIONS, 3.0, draws=30, top_k=5, top_p=0.3)
    shares = np.exp(best.logprobs / 3.0)
    before = (np.cumsum(shares, axis=1) - shares) / shares.sum(axis=1, keepdims=True)
    for row in range(64):
        assert set(nucleus.ids[row].tolist()) <= set(best.ids[row][before[row] < 0.3].tolist())


@pytest.mark.slow
def test_where_lists_leave_no_class_none_is_drawn(plain_head):
    draws = plain_head.sample(CONTEXTS[:2], 5, allow=[3], ban=[3], draws=2)
    assert (draws.ids == -1).all()
    assert (draws.logprobs == -np.inf).all()


@pytest.mark.parametrize("top_k", [0, -1, 10**9, 1.5])
def test_an_error_names_the_argument_that_was_wrong(head, top_k):
    with pytest.raises(BadInput, match=r"^top_k is .*( k from 1 to |whole number)"):
        head.sample(np.zeros((1, head.manifest.dim), np.float32), 1, top_k=top_k)


def test_a_request_without_rows_gets_none(head):
    assert head.sample(np.empty((0, head.manifest.dim)), 5, draws=3).ids.shape == (0, 3)


@pytest.mark.slow
def test_a_head_without_a_dense_layer_refuses(tmp_path):
    head = make_head(tmp_path, make_dense(), keep_dense=False)
    with pytest.raises(BadInput, match="--no-dense, so it has no exact answers"):
        head.sample(make_contexts(2).contexts, 1)
