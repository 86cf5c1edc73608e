"""Scores that know the k best of each row, beside the same scores in an ordinary tensor."""

import numpy as np
import pytest
import torch
from shortlist.integrations.lazy_scores import LazyScores, Rows, make_scores
from shortlist.integrations.scores import ScoreMemory

CLASSES, BEAMS = 40, 2
SCORES = torch.tensor([[-0.5, -1.5, -3.0], [-0.9, -1.0, -2.5], [-0.1, -3.0, -4.0], [-2.0, -2.0, -3.5]])
IDS = torch.tensor([[7, 3, 39], [0, 5, 6], [21, 20, 1], [4, 9, 2]])
ADDED = torch.tensor([[-1.0, -0.2], [0.0, -1e9]])


def make_rows(scores=SCORES, ids=IDS, classes=CLASSES):
    left = (1 - scores.double().exp().sum(dim=1, keepdim=True)).clamp(min=1e-30)
    rest = (left / (classes - ids.shape[1])).log().float().minimum(scores[:, -1:])
    return Rows(ids, scores, rest, ScoreMemory(np.zeros(classes, bool)))


def make_pair():
    """Scores [4, 1, V], lazy and ordinary."""
    ordinary = make_scores(make_rows()).reshape(4, 1, CLASSES) + 0
    assert type(ordinary) is torch.Tensor
    return make_scores(make_rows()).reshape(4, 1, CLASSES), ordinary


def search_beams(logits, k=2 * BEAMS):
    """What beam search of transformers does with the logits of a step."""
    scores = torch.nn.functional.log_softmax(logits[:, -1, :].to(copy=True, dtype=torch.float32), dim=-1)
    scores = torch.reshape(scores, (2, BEAMS, CLASSES)) + ADDED[:, :, None]
    return torch.topk(torch.reshape(scores, (2, -1)), k=k)


def is_written(scores):
    return scores.held.table is not None


def test_a_step_of_beam_search_writes_nothing_and_finds_the_same():
    lazy, ordinary = make_pair()
    (values, ids), wanted = search_beams(lazy), search_beams(ordinary)
    assert ids.tolist() == wanted.indices.tolist()
    torch.testing.assert_close(values, wanted.values)
    assert type(values) is type(ids) is torch.Tensor
    assert not is_written(lazy)


def test_a_greedy_step_writes_nothing_and_finds_the_same():
    lazy, ordinary = make_pair()
    step = lazy[:, -1, :].to(copy=True, dtype=torch.float32, device="cpu")
    assert torch.argmax(step, dim=-1).tolist() == ordinary[:, -1].argmax(-1).tolist() == [7, 0, 21, 4]
    assert not is_written(step)
    assert not is_written(lazy)


def test_classes_beside_the_best_are_found_where_more_are_asked_for():
    lazy, ordinary = make_pair()
    wanted = search_beams(ordinary, 9).values
    torch.testing.assert_close(search_beams(lazy, 9).values, wanted)


def test_log_softmax_of_many_classes_is_themselves():
    classes = 262_144
    best, ids = torch.tensor([[-0.01, -6.0]]), torch.tensor([[5, 70_000]])
    scores = make_scores(make_rows(best, ids, classes))
    computed = torch.nn.functional.log_softmax(make_scores(make_rows(best, ids, classes)).clone(), dim=-1)
    assert (computed.gather(1, ids) - best).abs().max() > 1e-4  # nats: what float32 makes of 262,142 equal shares
    assert torch.nn.functional.log_softmax(scores, dim=-1).gather(1, ids).tolist() == best.tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda scores: scores * 2,
        lambda scores: scores.log_softmax(1),
        lambda scores: scores[:, 0].softmax(-1),
        lambda scores: scores[..., 3:9],
        lambda scores: scores[torch.tensor([1, 0])],
        lambda scores: scores.reshape(8, 20),
        lambda scores: scores.reshape(2, 2, -1)[1] + torch.arange(CLASSES),
        lambda scores: scores + torch.ones(4, 1, 1, dtype=torch.float64),
        lambda scores: (scores + torch.ones(4, 1, 1)).log_softmax(-1),
        lambda scores: scores.double(),
        lambda scores: scores.to(torch.float64),
        lambda scores: scores.to(dtype=torch.float16),
        lambda scores: scores.topk(3, largest=False).values,
        lambda scores: scores.argmax(0),
        lambda scores: scores.argmax(-1, keepdim=True),
        lambda scores: torch.cat([scores, scores]),
        lambda scores: torch.where(scores > -2, scores, -torch.inf),
        lambda scores: torch.tensor(np.asarray(scores)),
        lambda scores: torch.tensor([len(scores), scores.ndim, scores.numel(), *scores.shape, *scores.size()]),
    ],
)
def test_all_else_is_what_an_ordinary_tensor_gives(function):
    lazy, ordinary = make_pair()
    torch.testing.assert_close(function(lazy), function(ordinary), rtol=0, atol=1e-6)


def test_what_is_changed_stays_changed_in_views_and_not_in_copies():
    lazy, _ = make_pair()
    last, copied = lazy[:, -1], lazy.to(copy=True)
    last[:, 7] = -torch.inf
    assert lazy[0].argmax(-1).tolist() == last[:1].argmax(-1).tolist() == [3]
    assert torch.nn.functional.log_softmax(last, -1)[0, 3] > SCORES[0, 1]
    assert copied[0].argmax(-1).tolist() == [7]


def test_memory_of_its_own_holds_no_numbers():
    lazy, _ = make_pair()
    with torch._C.DisableTorchFunctionSubclass():
        assert lazy.isnan().all()
    assert isinstance(lazy, LazyScores)
    assert not is_written(lazy)
