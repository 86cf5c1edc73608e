"""Scores of all classes made of the k best."""

import numpy as np
import pytest
from shortlist.core.results import TopK
from shortlist.integrations.scores import ScoreMemory, find_padding, share_rest

from tests.support.heads import ds
from tests.support.layers import make_head


@pytest.mark.parametrize(
    ("logprobs", "classes"), [([[-0.1, -3.0]], 50), ([[-0.1, -9.0]], 4), ([[-0.2, -1.6]], 5), ([[0.0, -9.0]], 9)]
)
def test_what_is_left_over_never_outweighs_what_was_returned(logprobs, classes):
    top = TopK(np.array([[3, 1]]), np.array(logprobs, np.float32), np.array([9]), "estimated")
    some, rest = share_rest(top, classes)
    assert rest <= some.min()
    total = np.exp(some.astype(np.float64)).sum() + (classes - 2) * np.exp(rest.astype(np.float64))
    assert abs(total - 1) < 1e-6


def write(memory, class_id):
    ids, scores = np.array([[class_id]]), np.zeros((1, 1), np.float32)
    return memory.write(ids, scores, np.full((1, 1), -9.0, np.float32))


def test_memory_is_used_again_once_nobody_holds_earlier_scores():
    memory = ScoreMemory(np.array([False, False, False, True]))
    first = write(memory, 1)
    assert first.tolist() == [[-9.0, 0.0, -9.0, -np.inf]]
    second = write(memory, 2)
    assert first[0, 1] == 0.0
    assert not np.shares_memory(first, second)
    place = second.__array_interface__["data"][0]
    del first, second
    assert write(memory, 0).__array_interface__["data"][0] == place


def test_the_last_class_keeps_its_score_where_a_row_has_fewer_than_k():
    ids, none = np.array([[3, -1], [1, -1]]), np.full((2, 1), -np.inf, np.float32)
    table = ScoreMemory(np.zeros(4, bool)).write(ids, np.array([[0, -np.inf], [0, -np.inf]], np.float32), none)
    assert table.argmax(axis=1).tolist() == [3, 1]
    assert np.isneginf(table).sum() == 6


def test_classes_of_probability_0_are_padding_of_heads_with_a_dense_layer_alone(tmp_path):
    head = ds.exported(tmp_path / "own", ds.make_module())
    zero = head.compute_logits(head.plan, ds.rows[:1], np.arange(300)[None])[0]
    assert np.isneginf(zero).sum() > 200
    assert not find_padding(head, zero).any()
    head = make_head(tmp_path / "dense", ds.dense)
    zero = head.compute_logits(head.plan, ds.rows[:1], np.arange(300)[None])[0]
    assert find_padding(head, zero).nonzero()[0].tolist() == [5, 17]
