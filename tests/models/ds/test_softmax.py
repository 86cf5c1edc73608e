"""Doubly Sparse Softmax against transcriptions of its formulas."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist_models import FullSoftmax
from shortlist_models.ds.checks import check_targets
from shortlist_models.ds.compaction import count_allocated_bytes
from shortlist_models.ds.gate import separate_directions, spread_directions
from shortlist_models.ds.mitosis import clone
from shortlist_models.ds.softmax import DSOptions, DSSoftmax

pytestmark = pytest.mark.slow

CLASSES, DIM, EXPERTS = 30, 6, 4


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make_module(seed=0, options=None, sizes=(4, 9, 1, 17)):
    random = generator(seed)
    ids = [torch.randperm(CLASSES, generator=random)[:size].sort().values for size in sizes]
    total = sum(sizes)
    weight, bias = torch.randn(total, DIM, generator=random), torch.randn(total, generator=random)
    return DSSoftmax(weight, bias, torch.randn(len(sizes), DIM, generator=random), ids, CLASSES, options)


def make_contexts(rows=50, seed=1):
    return torch.randn(rows, DIM, generator=generator(seed))


@torch.no_grad()
def parts_of(module, h):
    """Expert, its ids and its scaled logits for one context, by Equation 1."""
    scores = [math.exp(float(module.gate[k] @ h)) for k in range(module.experts)]
    gates = [score / sum(scores) for score in scores]
    k = max(range(module.experts), key=lambda i: gates[i])
    start, stop = module.offsets[k], module.offsets[k + 1]
    ids = module.ids[start:stop].tolist()
    logits = [gates[k] * float(module.weight[i] @ h + module.bias[i]) for i in range(start, stop)]
    return gates[k], k, dict(zip(ids, logits, strict=True))


def test_log_prob_is_equation_1():
    module, contexts = make_module(), make_contexts()
    result = module.log_prob(contexts)
    for h, row in zip(contexts, result, strict=True):
        _, _, logits = parts_of(module, h)
        z = sum(math.exp(value) for value in logits.values())
        for c in range(CLASSES):
            expected = logits[c] - math.log(z) if c in logits else -math.inf
            assert float(row[c].detach()) == pytest.approx(expected, abs=1e-4)


def test_the_best_classes_are_those_of_log_prob():
    module, contexts = make_module(), make_contexts()
    ids, logprobs = module.topk(contexts, 6)
    expected = module.log_prob(contexts).detach().topk(6, dim=1)
    torch.testing.assert_close(logprobs, expected.values)
    assert torch.equal(ids < 0, expected.values.isinf())
    assert torch.equal(ids[ids >= 0], expected.indices[ids >= 0])


def test_loss_is_its_formula_with_pruned_classes_at_logit_0():
    module, contexts = make_module(options=DSOptions(lasso=0.3, expert_lasso=0.2, load=0.7)), make_contexts()
    targets = torch.randint(0, CLASSES, (50,), generator=generator(2))
    task, loads = 0.0, [0.0] * EXPERTS
    for h, target in zip(contexts, targets.tolist(), strict=True):
        gate, k, logits = parts_of(module, h)
        z = sum(math.exp(value) for value in logits.values()) + (CLASSES - len(logits))
        task += (math.log(z) - logits.get(target, 0.0)) / 50
        loads[k] += gate
    rows = ((module.weight**2).sum(dim=1) + module.bias**2).tolist()
    rms = [math.sqrt(row / (DIM + 1)) for row in rows]
    experts = module.offsets.tolist()
    frobenius = sum(math.sqrt(sum(value**2 for value in rms[a:b])) for a, b in itertools.pairwise(experts))
    mean = sum(loads) / EXPERTS
    variation = sum((load - mean) ** 2 for load in loads) / EXPERTS / mean**2
    expected = task + 0.3 * sum(rms) + 0.2 * frobenius + 0.7 * variation
    assert float(module(contexts, targets).detach()) == pytest.approx(expected, rel=1e-4)


def test_expert_lasso_of_the_authors_code_groups_a_class_over_experts():
    module = make_module(options=DSOptions(expert_group="class"))
    rows = module.row_norms().detach() ** 2
    expected = sum(float((rows[module.ids == c].sum() / EXPERTS).sqrt()) for c in range(CLASSES))
    assert float(module.sum_group_norms()[1].detach()) == pytest.approx(expected, rel=2e-3)


def test_distilling_one_hot_probabilities_is_the_loss_of_their_classes():
    module, contexts = make_module(), make_contexts()
    targets = torch.randint(0, CLASSES, (50,), generator=generator(2))
    one_hot = torch.nn.functional.one_hot(targets, CLASSES).float()
    torch.testing.assert_close(module(contexts, one_hot), module(contexts, targets))


def test_one_expert_is_the_dense_softmax():
    weight, bias = torch.randn(CLASSES, DIM, generator=generator(3)), torch.randn(CLASSES, generator=generator(4))
    dense = FullSoftmax(weight, bias, logit_scale=0.5, padded=torch.tensor([2, 29]))
    contexts = make_contexts()
    torch.testing.assert_close(DSSoftmax.from_dense(dense).log_prob(contexts), dense.log_prob(contexts))
    targets = torch.arange(50) % 20 + 5
    task = DSSoftmax.from_dense(dense).losses(contexts, targets).task
    torch.testing.assert_close(task, dense(contexts, targets))


@pytest.mark.parametrize("children", [2, 3])
def test_clones_answer_as_their_parent(children):
    module, contexts = make_module(), make_contexts(500)
    before, copies = module.topk(contexts, 4)[0], len(module.ids)
    scores = module.gates(contexts).max(dim=1)
    clone(module, contexts, generator(), children=children)
    assert module.experts == children * EXPERTS
    assert len(module.ids) == children * copies
    same = module.gates(contexts).argmax(dim=1) // children == scores.indices
    assert float(same.float().mean()) > 0.6  # noise may lead to a neighbour's child
    assert torch.equal(module.topk(contexts, 4)[0][same], before[same])
    utilization = module.utilization(contexts[same])
    assert int((utilization > 0).sum()) > EXPERTS


def test_a_layer_cloned_keeps_its_mean_logit_and_shares_its_contexts():
    weight = torch.randn(CLASSES, DIM, generator=generator(3))
    module, contexts = (
        DSSoftmax.from_dense(FullSoftmax(weight)),
        make_contexts(2000) + torch.tensor([3.0, 0, 0, 0, 0, 0]),
    )
    clone(module, contexts, generator())
    value = module.gates(contexts).max(dim=1).values
    factor = module.weight[0] / weight[0]
    torch.testing.assert_close((value * factor[0]).mean().detach(), torch.tensor(1.0), atol=1e-4, rtol=0)
    assert 0.2 < float(module.utilization(contexts)[0]) < 0.8


def test_noise_has_the_size_asked_for_and_is_across_the_mean():
    contexts = make_contexts(3000) * torch.tensor([5.0, 1, 1, 1, 1, 1]) + torch.tensor([0, 0, 0, 0, 0, 40.0])
    noise = spread_directions(contexts, torch.randn(3, DIM, generator=generator()), 2.0)
    scores = contexts @ noise.T
    torch.testing.assert_close(scores.std(dim=0), torch.full((3,), 2.0), atol=1e-3, rtol=0)
    torch.testing.assert_close(scores.mean(dim=0), torch.zeros(3), atol=1e-2, rtol=0)
    assert (noise[:, 0].abs() > noise[:, 1:5].abs().amax(dim=1)).all()  # where contexts differ most


@given(seed=st.integers(0, 1000), clusters=st.integers(2, 5))
def test_one_child_for_each_cluster(seed, clusters):
    random = generator(seed)
    centres = 10 * torch.linalg.qr(torch.randn(DIM, DIM, generator=random)).Q[:clusters]
    cluster_ids = torch.randint(clusters, (500,), generator=random)
    contexts = centres[cluster_ids] + 0.3 * torch.randn(500, DIM, generator=random)
    module = make_module(seed, sizes=(30,))
    before = module.topk(contexts, 3)[0]
    clone(module, contexts, random, children=7, noise=10.0, directions=separate_directions)
    assert module.experts == clusters
    assert module.sizes == [30] * clusters
    experts = module.gates(contexts).argmax(dim=1)
    assert len({(int(cluster), int(expert)) for cluster, expert in zip(cluster_ids, experts, strict=True)}) == clusters
    assert torch.equal(module.topk(contexts, 3)[0], before)


@given(seed=st.integers(0, 1000), gamma=st.floats(0.0, 3.0), keep_one=st.booleans())
def test_pruning_drops_small_rows_alone_and_for_good(seed, gamma, keep_one):
    module = make_module(seed, DSOptions(gamma=gamma, keep_one=keep_one))
    before, sizes = set(module.ids.tolist()), module.row_norms().detach()
    rows, sets = module.weight.detach().clone(), module.sets
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    module(make_contexts(), torch.zeros(50, dtype=torch.int64)).backward()
    optimizer.step()
    with torch.no_grad():
        module.weight.copy_(rows)
        sizes = module.row_norms()
    dropped_count = module.prune(optimizer)
    assert dropped_count == len(rows) - len(module.weight)
    assert min(module.sizes) >= 1
    assert all(set(ids.tolist()) <= set(old.tolist()) for ids, old in zip(module.sets, sets, strict=True))
    assert not keep_one or set(module.ids.tolist()) == before
    assert int((sizes >= gamma).sum()) <= len(module.ids)
    extra = len(module.ids) - int((sizes >= gamma).sum())
    assert extra <= EXPERTS + (CLASSES if keep_one else 0)
    assert all(bool((ids.diff() > 0).all()) for ids in module.sets)
    assert optimizer.state[module.weight]["exp_avg"].shape == module.weight.shape
    is_gone = module.log_prob(make_contexts()).isinf()
    module(make_contexts(), torch.zeros(50, dtype=torch.int64)).backward()
    optimizer.step()
    assert module.weight.grad.shape == module.weight.shape
    still = module.log_prob(make_contexts()).isinf()
    assert int(is_gone.sum(dim=1).min()) >= CLASSES - max(module.sizes)
    assert int(still.sum(dim=1).min()) >= CLASSES - max(module.sizes)


def test_a_loop_that_still_holds_its_loss_may_prune_and_clone():
    random = torch.Generator().manual_seed(0)
    contexts, targets = torch.randn(200, 16, generator=random), torch.randint(0, 60, (200,), generator=random)
    head = DSSoftmax.from_dense(FullSoftmax(torch.randn(60, 16, generator=random)), DSOptions(lasso=1e-2, gamma=4.0))
    clone(head, contexts, random)
    optimizer = torch.optim.Adam(head.parameters())
    for step in range(3):
        loss = head(contexts, targets)  # bound until the next step, with its graph
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dropped_count = head.prune(optimizer)
        assert step > 0 or dropped_count > 0
        if step == 1:
            clone(head, contexts, random, optimizer)
    assert loss.isfinite()


def test_momentum_follows_its_row():
    module = make_module(options=DSOptions(gamma=1.0, keep_one=False))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    module(make_contexts(), torch.zeros(50, dtype=torch.int64)).backward()
    optimizer.step()
    mask = module.row_norms().detach() >= 1.0
    mask[13] = True  # the only row of the third expert
    first, second = (optimizer.state[module.weight][name].clone() for name in ("exp_avg", "exp_avg_sq"))
    sizes = module.sizes
    largest = torch.cat([norms == norms.max() for norms in module.row_norms().detach().split(sizes)])
    module.prune(optimizer)
    assert torch.equal(optimizer.state[module.weight]["exp_avg"], first[mask | largest])
    assert torch.equal(optimizer.state[module.weight]["exp_avg_sq"], second[mask | largest])


def test_memory_is_weights_gradients_and_moments_and_falls_with_pruning():
    module = make_module(options=DSOptions(gamma=1.0, keep_one=False))
    rows = len(module.ids)
    numbers = rows * (DIM + 1) + EXPERTS * DIM
    assert count_allocated_bytes(module) == 4 * numbers
    optimizer = torch.optim.Adam(module.parameters())
    module(make_contexts(), torch.zeros(50, dtype=torch.int64)).backward()
    optimizer.step()
    steps = 3 * 4  # Adam counts its steps, one number a parameter
    assert count_allocated_bytes(module, optimizer) == 4 * 4 * numbers + steps
    module.prune(optimizer)
    left = len(module.ids) * (DIM + 1)
    assert len(module.ids) < rows
    assert count_allocated_bytes(module, optimizer) == 4 * 3 * left + 4 * 4 * EXPERTS * DIM + steps


def test_speedup_is_the_papers():
    module = make_module()
    utilization = torch.tensor([0.5, 0.25, 0.0, 0.25])
    assert module.speedup(utilization) == pytest.approx(CLASSES / (0.5 * 4 + 0.25 * 9 + 0.25 * 17 + 4))


def test_a_state_of_any_size_comes_back():
    module, contexts = make_module(), make_contexts()
    again = DSSoftmax.from_state(module.state_dict(), CLASSES)
    torch.testing.assert_close(again.log_prob(contexts), module.log_prob(contexts))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"classes": 1}, "there is one class only"),
        ({"ids": [torch.tensor([], dtype=torch.int64), torch.arange(4)]}, "expert 0 has no class left"),
        ({"ids": [torch.arange(4)]}, "the gate has 2 rows for 1 experts"),
        ({"ids": [torch.arange(2), torch.arange(3)]}, "4 weights and 4 biases for 5 classes"),
        ({"ids": [torch.tensor([1, 1]), torch.arange(2)]}, "expert 0's ids must ascend"),
        ({"ids": [torch.arange(2), torch.tensor([0, 5])]}, "expert 1's ids must ascend and lie in 0 to 4"),
    ],
)
def test_parts_that_make_no_softmax(change, sentence):
    parts = {"ids": [torch.arange(2), torch.arange(2)], "classes": 5} | change
    with pytest.raises(ValueError, match=sentence):
        DSSoftmax(torch.zeros(4, 3), torch.zeros(4), torch.zeros(2, 3), parts["ids"], parts["classes"])


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (torch.tensor([0, 5]), "targets go from 0 to 5 but classes from 0 to 4"),
        (torch.tensor([-1, 2]), "targets go from -1 to 2"),
        (torch.tensor([1]), r"targets have shape \[1\] for 2 contexts"),
        (torch.zeros(2, 4), r"targets have shape \[2, 4\] for 2 contexts and 5 classes"),
    ],
)
def test_targets_out_of_range(targets, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_targets(targets, 2, 5)
