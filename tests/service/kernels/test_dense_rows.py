"""The k best of all logits, and of a layer, by compiled loops: against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.kernels import dense_rows
from shortlist.kernels.dense_rows import CompiledLayer, CompiledRanking, DenseRowAnswers, LayerAnswers
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.native.library import open_target
from shortlist.kernels.row_answers import answer_rows
from shortlist.plans.full import rank_rows

from tests.support.kernels import list_targets
from tests.support.layers import make_dense, make_head

MOST_ROWS = 20  # of a call
SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 3000]


@pytest.fixture(scope="module", params=list_targets())
def ranking(request):
    ranking = CompiledRanking(1)
    ranking.kernels = open_target(request.param)
    return ranking


def make_logits(random, count, classes):
    logits = random.standard_normal((count, classes)) * 10.0 ** random.integers(-3, 4)
    if random.random() < 0.5:
        logits = np.round(logits)  # many are equal
    logits[:, random.random(classes) < random.choice([0, 0, 0.1, 0.9])] = -np.inf
    return logits.astype(np.float32)


def make_lists(random, count, classes):
    allow, ban = (
        random.integers(-1, classes, (random.choice([1, count]), random.integers(0, 2 * classes))) for _ in range(2)
    )
    return ClassFilter(allow if random.random() < 0.4 else None, ban if random.random() < 0.4 else None)


@given(st.sampled_from(SIZES), st.integers(1, 5), st.booleans(), st.integers(1, 3), st.integers(0, 1 << 32))
def test_ranks_are_those_of_numpy(ranking, classes, count, few, threads, seed):
    random = np.random.default_rng(seed)
    logits, lists = make_logits(random, count, classes), make_lists(random, count, classes)
    k = int(random.integers(1, min(8, classes) + 1 if few else classes + 1))
    ranking.threads = threads
    wanted, result = rank_rows(logits.copy(), k, lists), ranking.rank(logits.copy(), k, lists)
    np.testing.assert_array_equal(result.ids, wanted.ids)
    np.testing.assert_array_equal(result.logits, wanted.logits)
    np.testing.assert_array_equal(result.scored, wanted.scored)
    np.testing.assert_allclose(result.log_normalizer, wanted.log_normalizer, atol=2e-6, rtol=2e-7)


def test_the_normaliser_of_many_classes_is_exact(ranking):
    """A sum in float32 alone would be off by a thousandth."""
    logits = np.random.default_rng(0).standard_normal((2, 1 << 20)).astype(np.float32)
    truth = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(ranking.rank(logits, 1, UNRESTRICTED).log_normalizer, truth, atol=3e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_overflow_shows_in_the_normaliser_of_its_row_alone(ranking, bad):
    logits = np.zeros((3, 100), np.float32)
    logits[1, 7] = bad
    result = ranking.rank(logits, 5, UNRESTRICTED)
    assert np.isfinite(result.log_normalizer).tolist() == [True, False, True]
    assert ((result.ids >= -1) & (result.ids < 100)).all()


def test_a_row_without_classes(ranking):
    result = ranking.rank(np.full((1, 40), -np.inf, np.float32), 2, UNRESTRICTED)
    assert (result.ids.tolist(), result.log_normalizer.tolist()) == ([[-1, -1]], [-np.inf])


def test_no_rows(ranking):
    assert ranking.rank(np.empty((0, 40), np.float32), 2, UNRESTRICTED).ids.shape == (0, 2)


def test_equal_scores_come_by_lower_id(ranking):
    logits = np.array([[0.0, -0.0, 1.0, 1.0, -0.0, 1.0]], np.float32).repeat(2, axis=0)
    assert ranking.rank(logits, 5, UNRESTRICTED).ids.tolist() == [[2, 3, 5, 0, 1]] * 2


def open_layer(random, target, classes, dim, threads):
    """Answers of a layer with all that a logit may have, and the layer."""
    weight, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((classes, dim), classes))
    weight[classes // 2] = weight[0]  # equal scores come by lower id
    padding = np.where(random.random(classes) < 0.2, -np.inf, 0).astype(np.float32)
    bias[classes // 2], padding[[0, classes // 2]] = bias[0], 0
    layer = CompiledLayer(CompiledGather(weight, 0.5, None, bias, padding, threads), threads)
    layer.function = open_target(target).score_layer

    def score(contexts):
        return np.concatenate([layer.score(context[None]) for context in contexts])

    answers = LayerAnswers(layer, score, classes, MOST_ROWS, threads)
    answers.function, answers.answer_row = (
        getattr(open_target(target), name) for name in ("answer_rows_of_logits", "answer_row_of_layer")
    )
    return answers, lambda row: (weight.astype(np.float64) @ row + bias) * 0.5 + padding


@pytest.mark.parametrize("dim", [1, 15, 16, 17, 40, 64])
@pytest.mark.parametrize("classes", [1, 2, 17, 1024, 1500, 2065])
@pytest.mark.parametrize("threads", [1, 3])
def test_answers_of_a_layer_are_those_of_float64(classes, dim, threads):
    random = np.random.default_rng(classes + dim)
    context = random.standard_normal((1, dim)).astype(np.float32)
    k = min(classes, 7)
    bits = set()
    for target in list_targets():
        answers, score = open_layer(np.random.default_rng(classes), target, classes, dim, threads)
        answers.layer.threaded_runs.row_seconds = 1.0  # so that threads share it
        ids, logprobs, scored = answers(context, k)
        logits = score(context[0])
        known = ids[0] >= 0
        truth = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        np.testing.assert_allclose(logprobs[0][known], truth[ids[0][known]], atol=1e-5)
        np.testing.assert_allclose(logits[ids[0]][known], np.sort(logits)[::-1][:k][known], atol=1e-5)
        own = answers.layer.score(context)
        np.testing.assert_allclose(own[0], logits, atol=1e-5)
        bits.add((ids.tobytes(), logprobs.tobytes(), scored.tobytes(), own.tobytes()))
    assert len(bits) == 1
    assert scored.tolist() == [classes]


@pytest.mark.parametrize("kind", ["layer", "logits"])
def test_a_row_with_lists_is_answered_as_by_ranks(kind):
    """Lists with ids twice and in disorder, of a few classes or of most, that may leave none."""
    random, context = np.random.default_rng(7), np.random.default_rng(8).standard_normal((1, 40)).astype(np.float32)
    for target in list_targets():
        answers, _ = open_layer(np.random.default_rng(3), target, 1500, 40, 1)
        score = answers.layer.score
        if kind == "logits":
            answers = DenseRowAnswers(score, 40, 1500, 1500, MOST_ROWS, 1)
        for _ in range(40):
            lists = make_lists(random, 1, 1500)
            known = [ids if ids is None else ids[ids >= 0] for ids in (lists.allow, lists.ban)]
            if any(ids is not None and not 0 < ids.size <= 1500 for ids in known):
                continue  # these go the long way
            wanted = CompiledRanking(1).rank(score(context), 9, lists)
            ids, logprobs, scored = answers.answer_listed(context, 9, *known)
            np.testing.assert_array_equal(ids, wanted.ids)
            np.testing.assert_array_equal(logprobs[0], wanted.logits[0] - wanted.log_normalizer[0])
            assert scored.tolist() == [1500]
            assert answers.read_risk((ids, logprobs, scored)).tolist() == [0]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lists", [{}, {"ban": np.arange(0, 1500, 3)}, {"allow": np.arange(700, 760)}])
def test_many_rows_are_answered_as_each_by_itself(threads, lists):
    contexts = np.random.default_rng(8).standard_normal((MOST_ROWS, 40)).astype(np.float32)
    for target in list_targets():
        answers, _ = open_layer(np.random.default_rng(3), target, 1500, 40, threads)
        together = answer_rows(answers, contexts, 9, lists.get("allow"), lists.get("ban"), None)
        for row in range(MOST_ROWS):
            alone = answer_rows(answers, contexts[[row]], 9, lists.get("allow"), lists.get("ban"), None)
            for part, one in zip(together, alone, strict=True):
                np.testing.assert_array_equal(part[row], one[0])
        assert answers.read_risk(together).tolist() == [0] * MOST_ROWS


def test_more_rows_than_a_call_takes_are_left_to_the_long_way():
    answers, _ = open_layer(np.random.default_rng(3), "portable", 1500, 40, 1)
    assert answers(np.ones((MOST_ROWS + 1, 40), np.float32), 3) is None


def test_one_row_that_float32_does_not_hold_leaves_all_to_the_long_way():
    """Which says which one it is."""
    answers, _ = open_layer(np.random.default_rng(4), "portable", 100, 20, 1)
    for value in (np.nan, np.float32(3e38)):
        contexts = np.ones((3, 20), np.float32)
        contexts[1] = value
        assert answers(contexts, 3) is None


@pytest.mark.parametrize("lists", [{"ban": [1500]}, {"allow": [-2]}, {"ban": []}, {"allow": [[1], [2]]}])
def test_lists_that_are_none_are_left_to_the_long_way(lists):
    answers, _ = open_layer(np.random.default_rng(3), "portable", 1500, 40, 1)
    assert answers.answer_listed(np.ones((1, 40), np.float32), 3, lists.get("allow"), lists.get("ban")) is None


def test_equal_rows_of_a_layer_come_by_lower_id():
    for target in list_targets():
        answers, _ = open_layer(np.random.default_rng(3), target, 1500, 40, 1)
        ids = answers(np.ones((1, 40), np.float32), 1500)[0][0].tolist()
        assert ids.index(750) == ids.index(0) + 1


@pytest.mark.parametrize("value", [np.nan, np.inf, np.float32(3e38)])
def test_what_float32_does_not_hold_has_no_answer(value):
    answers, _ = open_layer(np.random.default_rng(4), "portable", 100, 20, 1)
    assert answers(np.full((1, 20), value, np.float32), 3) is None


@pytest.mark.parametrize(
    ("classes", "cached_bytes", "options", "kind"),
    [
        (1500, 1 << 20, {}, LayerAnswers),
        (1500, 1 << 20, {"soft_cap": 3.0}, DenseRowAnswers),
        (1500, 1 << 17, {}, DenseRowAnswers),  # larger than that
        (900, 1 << 20, {}, DenseRowAnswers),  # in the graph itself
    ],
)
def test_layers_that_the_graph_reads_as_fast_are_left_to_it(
    tmp_path, monkeypatch, classes, cached_bytes, options, kind
):
    monkeypatch.setattr(dense_rows, "MAX_CACHED_BYTES", cached_bytes)
    head = make_head(tmp_path, make_dense(classes, 24, **options), method="full", options={})
    assert type(head.row_answers) is kind
