"""Scores of all classes made of the k best."""

import numpy as np
import pytest
from shortlist.core.results import TopK
from shortlist.integrations.scores import ScoreMemory, share_rest


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
