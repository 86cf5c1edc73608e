"""Plan `full`: the dense layer, ranked by compiled loops or by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist

from tests.support.layers import DIM, list_layers, logits_of, logprobs_of, make_contexts, make_dense, make_head

CLASSES = 2500
rows = make_contexts(20, seed=4).contexts * np.float32(0.1)


@pytest.fixture(scope="module", params=list_layers(CLASSES))
def layer(request, tmp_path_factory):
    dense = make_dense(CLASSES, DIM, **list_layers(CLASSES)[request.param])
    return dense, make_head(tmp_path_factory.mktemp("full"), dense, method="full", options={})


def check_answers(head, dense, k, **lists):
    top = head.topk(rows, k, **lists)
    legal = np.isin(np.arange(CLASSES), lists.get("allow", np.arange(CLASSES)))
    legal[lists.get("ban", [])] = False
    logits = np.where(legal, logits_of(dense, rows), -np.inf)
    best = np.sort(logits, axis=1)[:, ::-1][:, :k]
    known = top.ids >= 0
    np.testing.assert_array_equal(known, np.isfinite(best))
    truth = np.take_along_axis(logprobs_of(dense, rows), np.maximum(top.ids, 0), axis=1)
    np.testing.assert_allclose(top.logprobs[known], truth[known], atol=1e-5)
    np.testing.assert_allclose(
        np.take_along_axis(logits, np.maximum(top.ids, 0), axis=1)[known], best[known], atol=1e-5
    )
    assert (top.scored == CLASSES).all()


@pytest.mark.parametrize("k", [1, 5, 200])
@pytest.mark.parametrize("lists", [{}, {"ban": [3, 4, 5]}, {"allow": [1, 1, 7, 300]}, {"allow": [1, 7], "ban": [7]}])
@pytest.mark.parametrize("threads", [1, 2])
def test_answers_are_those_of_float64(layer, k, lists, threads):
    dense, head = layer
    assert head.plan.ranking is not None
    check_answers(shortlist.load(head.folder, threads=threads), dense, k, **lists)


def test_without_the_library_they_are_the_same(layer, no_library):
    dense, head = layer
    other = shortlist.load(head.folder, threads=1)
    assert other.plan.ranking is None
    for lists in ({}, {"ban": [3, 4, 5]}, {"allow": [1, 7, 300]}):
        check_answers(other, dense, 5, **lists)
        np.testing.assert_array_equal(other.topk(rows, 5, **lists).ids, head.topk(rows, 5, **lists).ids)


def test_given_classes_have_the_same_normaliser(layer):
    head = layer[1]
    top = head.topk(rows, 5)
    np.testing.assert_allclose(head.logprobs(rows, top.ids), top.logprobs, atol=1e-5)
