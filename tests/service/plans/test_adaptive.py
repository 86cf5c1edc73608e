"""Plan `adaptive`, whatever trained the head: answers are those of all classes, though only some tails are opened."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.client.client import Client
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.adaptive.softmax import AdaptiveSoftmax

from tests.support.heads.adaptive import (
    FORMS,
    OPTIONS,
    brute_force,
    compute_logprobs,
    examples,
    learn_module,
    make,
    rows,
)
from tests.support.layers import CLASSES, DIM, RunningServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def truth(adaptive_form):
    return compute_logprobs(learn_module(*FORMS[adaptive_form]))


def test_answers_are_those_of_all_classes_for_every_k(adaptive_head, truth):
    for k in range(1, 101):
        ids, logprobs = brute_force(truth, k)
        top = adaptive_head.topk(rows, k)
        np.testing.assert_allclose(top.logprobs, logprobs, atol=1e-5)
        same = top.ids == ids
        assert same.mean() > 0.99  # float rounding may order near-equal classes differently
        np.testing.assert_allclose(np.take_along_axis(truth, top.ids, axis=1), logprobs, atol=1e-5)
        assert top.normalizer == "exact"


def test_a_row_alone_equals_the_row_in_a_batch_and_opens_as_many_tails(adaptive_head):
    for k in (1, 5, 50):
        adaptive_head.plan.tally.reset()
        together = adaptive_head.topk(rows, k)
        counts = list(adaptive_head.plan.tally.counts)
        adaptive_head.plan.tally.reset()
        for row in range(len(rows)):
            alone = adaptive_head.topk(rows[row : row + 1], k)
            np.testing.assert_allclose(alone.logprobs[0], together.logprobs[row], atol=1e-5)
            moved = alone.ids[0] != together.ids[row]  # near-equal classes, by float rounding
            assert moved.sum() <= 2
            assert set(alone.ids[0].tolist()) == set(together.ids[row].tolist())
            assert alone.scored[0] == together.scored[row]
        assert adaptive_head.plan.tally.counts == counts
        assert sum(counts) == len(rows)


def test_what_is_written_into_an_answer_changes_no_other(adaptive_head, monkeypatch):
    monkeypatch.setattr(adaptive_head.plan, "fused", None)
    scored = adaptive_head.topk(rows, 1).scored
    for row in range(len(rows)):
        top = adaptive_head.topk(rows[row : row + 1], 1)
        assert top.scored[0] == scored[row]
        top.scored[:] = -1


def test_only_tails_that_may_hold_an_answer_are_opened(tmp_path):
    """In the order of the tails: one is opened where its probability reaches the k-th best so far."""
    head, module = make(tmp_path), learn_module("adaptive", OPTIONS)
    logprobs = torch.from_numpy(compute_logprobs(module))
    sections = module.softmax.sections()
    for k in (1, 3, 10):
        best, scored = logprobs[:, sections[0]].topk(k).values, torch.full((len(rows),), len(sections[0]))
        for ids in sections[1:]:
            reached = logprobs[:, ids].logsumexp(dim=1) >= best[:, -1]
            more = torch.cat([best, logprobs[:, ids]], dim=1).topk(k).values
            best = torch.where(reached[:, None], more, best)
            scored += reached * len(ids)
        np.testing.assert_array_equal(head.topk(rows, k).scored, scored.numpy())
        assert head.topk(rows, k).scored.mean() < CLASSES  # some stay closed


def test_lists_act_inside(adaptive_head, truth):
    best = adaptive_head.topk(rows, 30).ids
    masked = truth.copy()
    np.put_along_axis(masked, best, -np.inf, axis=1)
    banned = adaptive_head.topk(rows, 5, ban=best)
    ids, logprobs = brute_force(masked, 5)
    np.testing.assert_allclose(banned.logprobs, logprobs, atol=1e-5)
    assert (banned.ids == ids).mean() > 0.99
    some = adaptive_head.topk(rows, 5, allow=[3, 99, 200], ban=[99])
    assert (np.sort(some.ids, axis=1)[:, -2:] == [3, 200]).all()
    assert (some.ids[:, 2:] == -1).all()
    np.testing.assert_allclose(some.logprobs[:, 0], truth[:, [3, 200]].max(axis=1), atol=1e-5)


def test_given_ids_have_their_log_probabilities(adaptive_head, truth):
    ids = np.random.default_rng(0).integers(-1, CLASSES, (len(rows), 9))
    expected = np.where(ids < 0, -np.inf, np.take_along_axis(truth, np.maximum(ids, 0), axis=1))
    np.testing.assert_allclose(adaptive_head.logprobs(rows, ids), expected, atol=1e-5)
    np.testing.assert_allclose(adaptive_head.logprobs(rows, ids, exact=True), expected, atol=1e-5)


def test_k_of_all_classes_is_the_whole_distribution(adaptive_head, truth):
    top = adaptive_head.topk(rows[:5], CLASSES)
    assert (np.sort(top.ids, axis=1) == np.arange(CLASSES)).all()
    np.testing.assert_allclose(top.logprobs, brute_force(truth[:5], CLASSES)[1], atol=1e-5)
    np.testing.assert_allclose(np.exp(top.logprobs).sum(axis=1), 1, atol=1e-4)


def test_exact_requests_are_answered_by_the_head_itself(adaptive_head):
    np.testing.assert_array_equal(adaptive_head.topk(rows, 5, exact=True).ids, adaptive_head.topk(rows, 5).ids)


def test_what_overflows_is_refused(adaptive_head):
    with pytest.raises(BadInput, match="so large that its scores overflow"):
        adaptive_head.topk(np.full((1, DIM), 3e38, np.float32), 5)
    with pytest.raises(BadInput, match="row 1 is so large"):
        adaptive_head.topk(np.stack([rows[0], np.full(DIM, 3e38, np.float32)]), 5)


@settings(max_examples=15, deadline=None)
@given(
    cutoffs=st.sets(st.integers(1, CLASSES - 1), min_size=1, max_size=4),
    k=st.integers(1, CLASSES),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    head_bias=st.booleans(),
)
def test_any_shape_equals_brute_force(tmp_path_factory, cutoffs, k, scale, head_bias):
    torch.manual_seed(0)
    module = AdaptiveSoftmax(DIM, CLASSES, sorted(cutoffs), 2.0, head_bias, torch.randperm(CLASSES))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
        truth = module.log_prob(torch.from_numpy(rows[:20])).numpy()
    sample = Contexts(examples.contexts[:100])
    head = make(tmp_path_factory.mktemp("any"), options={}, head=module, sample=sample)
    top = head.topk(rows[:20], k)
    assert all(len(set(ids.tolist())) == k for ids in top.ids)
    expected = brute_force(truth, k)[1]
    tolerance = 1e-5 if scale < 30 else 1e-3  # logits of some thousands
    np.testing.assert_allclose(top.logprobs, expected, atol=tolerance)
    np.testing.assert_allclose(np.take_along_axis(truth, top.ids, axis=1), expected, atol=tolerance)


def test_rows_that_open_every_tail_are_not_counted_as_answered_by_dense(tmp_path):
    make(tmp_path)
    with RunningServer(tmp_path) as server, Client(server.url) as client:
        assert (client.topk("lm", rows, CLASSES).scored == CLASSES).all()
        scraped = server.http.get("/metrics").text
    assert f'shortlist_rows_total{{answered="head",model="lm",version="1"}} {len(rows)}.0' in scraped
    assert 'shortlist_rows_total{answered="dense",model="lm",version="1"} 0.0' in scraped


def test_previews_are_only_left_out_where_there_are_any(adaptive_head):
    if adaptive_head.plan.previews:
        assert not adaptive_head.with_settings(previews=False).plan.settings.previews
    else:
        with pytest.raises(BadInput, match="'previews' would change nothing: this head has no previews"):
            adaptive_head.with_settings(previews=False)
