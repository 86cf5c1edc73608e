"""The adaptive softmax against torch's own, and against its formula written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist_models.adaptive.softmax import AdaptiveSoftmax, check_order, compute_tail_widths, order_by_frequency
from torch import nn

CLASSES, DIM, CUTOFFS = 60, 16, [7, 20, 40]


def make_contexts(rows=30, seed=0):
    return torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed))


def make_order(seed=1):
    return torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))


def make_torch(div_value=2.0, head_bias=True):
    torch.manual_seed(0)
    module = nn.AdaptiveLogSoftmaxWithLoss(DIM, CLASSES, CUTOFFS, div_value, head_bias)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(4)  # far from uniform
    return module


def restore(theirs, order=None):
    """Our module of torch's, whose positions are the ids in `order`."""
    return AdaptiveSoftmax.from_state(theirs.state_dict() | ({} if order is None else {"order": order}))


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("div_value", [1.0, 2.0])
def test_of_torch_has_its_log_prob_in_the_users_ids(head_bias, div_value):
    theirs, order, contexts = make_torch(div_value, head_bias), make_order(), make_contexts()
    ours = restore(theirs, order)
    result = ours.log_prob(contexts)
    torch.testing.assert_close(result[:, order], theirs.log_prob(contexts), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.exp().sum(dim=1), torch.ones(30), atol=1e-4, rtol=0)
    assert torch.equal(ours.predict(contexts), result.argmax(dim=1))


def test_loss_is_torchs_for_the_same_positions():
    theirs, order, contexts = make_torch(), make_order(), make_contexts()
    targets = torch.randint(CLASSES, (30,), generator=torch.Generator().manual_seed(2))
    result = restore(theirs, order)(contexts, targets)
    expected = theirs(contexts, order.argsort()[targets])
    torch.testing.assert_close(result.loss, expected.loss)
    torch.testing.assert_close(result.output, expected.output)


def test_log_prob_is_the_papers_product_of_cluster_and_class():
    """log p(w | h) = log p(C_i | h) + log p(w | C_i, h), written out."""
    ours, contexts = restore(make_torch(), make_order()), make_contexts()
    scores = contexts @ ours.head.weight.T + ours.head.bias
    head = scores.log_softmax(dim=1)
    expected = torch.empty(30, CLASSES)
    for section, ids in enumerate(ours.sections()):
        if section == 0:
            expected[:, ids] = head[:, : len(ids)]
            continue
        narrow, last = (layer.weight for layer in ours.tail[section - 1])
        within = (contexts @ narrow.T @ last.T).log_softmax(dim=1)
        expected[:, ids] = head[:, CUTOFFS[0] + section - 1 : CUTOFFS[0] + section] + within
    torch.testing.assert_close(ours.log_prob(contexts), expected, atol=1e-5, rtol=0)


def test_no_class_of_a_tail_is_likelier_than_the_tail():
    """What makes lazy opening exact."""
    ours, contexts = restore(make_torch(), make_order()), make_contexts(200)
    clusters = (contexts @ ours.head.weight.T + ours.head.bias).log_softmax(dim=1)[:, CUTOFFS[0] :]
    logprobs = ours.log_prob(contexts)
    for tail, ids in enumerate(ours.sections()[1:]):
        assert (logprobs[:, ids].max(dim=1).values <= clusters[:, tail]).all()


def test_state_dict_goes_back_to_torch():
    ours = AdaptiveSoftmax(DIM, CLASSES, CUTOFFS, 2.0, True, make_order())
    theirs = make_torch()
    theirs.load_state_dict({name: value for name, value in ours.state_dict().items() if name not in ("order", "ranks")})
    torch.testing.assert_close(theirs.log_prob(make_contexts()), ours.log_prob(make_contexts())[:, ours.order])


def test_from_state_takes_widths_that_no_div_value_gives():
    state = make_torch().state_dict()
    state["tail.1.0.weight"], state["tail.1.1.weight"] = torch.randn(5, DIM), torch.randn(20, 5)
    ours = AdaptiveSoftmax.from_state(state)
    assert ours.widths == [8, 5, 2]
    torch.testing.assert_close(ours.log_prob(make_contexts()).exp().sum(dim=1), torch.ones(30), atol=1e-4, rtol=0)


def test_order_by_frequency_is_by_count_then_id_and_keeps_what_never_occurs():
    assert order_by_frequency(torch.tensor([3, 3, 1, 4, 1]), 6).tolist() == [1, 3, 4, 0, 2, 5]


@given(counts=st.lists(st.integers(0, 50), min_size=4, max_size=30), cut=st.integers(1, 3))
def test_order_by_frequency_passes_the_check(counts, cut):
    targets = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    order = order_by_frequency(targets, len(counts))
    assert sorted(order.tolist()) == list(range(len(counts)))
    ordered = torch.tensor(counts)[order]
    assert (ordered.diff() <= 0).all()
    check_order(ordered, [cut])


@pytest.mark.parametrize("cutoffs", [[], [0], [20, 7], [7, 7], [7, 60], [7, 61], [-1, 7]])
def test_cutoffs_that_do_not_rise_are_refused(cutoffs):
    with pytest.raises(ValueError, match="must be increasing, from 1 to 59"):
        AdaptiveSoftmax(DIM, CLASSES, cutoffs, 2.0)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_tail_of_width_0_is_refused_though_torch_builds_it():
    assert make_torch(8.0).tail[2][0].out_features == 0
    with pytest.raises(ValueError, match="tail 2 would have width 0"):
        AdaptiveSoftmax(DIM, CLASSES, CUTOFFS, 8.0)
    with pytest.raises(ValueError, match="tail 2 would have width 0"):
        restore(make_torch(8.0))
    assert compute_tail_widths(200, 4, 4.0) == [50, 12, 3, 0]  # the example of the layer that everybody has


def test_ids_that_are_not_sorted_by_frequency_are_refused_without_a_mapping():
    counts = torch.arange(CLASSES)
    with pytest.raises(ValueError, match=r"classes of tail 1 occur 13 times each.*sorted by falling frequency"):
        check_order(counts, CUTOFFS)
    check_order(counts.flip(0), CUTOFFS)


@pytest.mark.parametrize("order", [torch.zeros(CLASSES), torch.arange(CLASSES - 1), torch.arange(1, CLASSES + 1)])
def test_an_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="order must hold each of the 60 classes once"):
        AdaptiveSoftmax(DIM, CLASSES, CUTOFFS, 2.0, order=order)


@pytest.mark.parametrize(
    ("bad_state", "sentence"),
    [
        ({"head.weight": None}, "has tensors head.weight"),
        ({"tail.0.0.weight": None}, "has tensors head.weight"),
        ({"tail.1.1.weight": None}, "no tensor tail.1.1.weight"),
        ({"tail.1.1.weight": torch.zeros(20, 5)}, "do not fit"),
        ({"tail.0.0.weight": torch.zeros(8, 15)}, "do not fit"),
        ({"head.weight": torch.zeros(3, DIM)}, "do not fit"),
    ],
)
def test_a_state_dict_of_something_else_is_one_sentence(bad_state, sentence):
    state = make_torch().state_dict() | bad_state
    with pytest.raises(ValueError, match=sentence):
        AdaptiveSoftmax.from_state({name: value for name, value in state.items() if value is not None})
