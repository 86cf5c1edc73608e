"""Learning to Screen against transcriptions of the paper."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist_models.l2s.candidate_sets import (
    Background,
    BestClasses,
    ScreenOptions,
    choose_candidate_sets,
    count_best_classes,
    fill_budget,
    make_indicator,
)
from shortlist_models.l2s.training import (
    relaxed_loss,
    sample_straight_through,
    sharpen_vectors,
    spherical_kmeans,
    train_screen,
)

pytestmark = pytest.mark.slow

CLASSES, DIM, DEPTH = 60, 8, 3


def make_problem(rows=400, seed=0, depth=DEPTH):
    generator = torch.Generator().manual_seed(seed)
    contexts = torch.randn(rows, DIM, generator=generator)
    weight = torch.randn(CLASSES, DIM, generator=generator)
    return contexts, BestClasses((contexts @ weight.T).topk(depth, dim=1).indices, CLASSES)


def test_loss_equals_equation_8_written_out():
    _, labels = make_problem(5)
    c = (torch.rand(4, CLASSES, generator=torch.Generator().manual_seed(1)) < 0.2).float()
    choice = torch.rand(5, 4, generator=torch.Generator().manual_seed(2)).softmax(dim=1)
    lam = 0.01
    expected = []
    for i in range(5):
        best = set(labels.ids[i].tolist())
        loss = 0.0
        for s in range(CLASSES):
            coverage = sum(float(choice[i, t] * c[t, s]) for t in range(4))
            loss += (1 - coverage) ** 2 if s in best else lam * coverage**2
        expected.append(loss)
    result = relaxed_loss(choice, labels.ids, c, c @ c.T, lam)
    torch.testing.assert_close(result, torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_loss_of_a_hard_choice_is_equation_6():
    """Missed wanted classes, plus lam for each class that was scored in vain."""
    _, labels = make_problem(1)
    sets = [labels.ids[0][:2].sort().values, torch.tensor([50, 51, 52])]
    c = make_indicator(sets, CLASSES)
    one_hot = torch.tensor([[1.0, 0.0]])
    in_vain = len(sets[0]) - 2
    assert float(relaxed_loss(one_hot, labels.ids, c, c @ c.T, 0.5)) == pytest.approx(1 + 0.5 * in_vain)


def test_sample_is_one_hot_with_the_gradient_of_its_softmax():
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    sample = sample_straight_through(logits, 0.5, torch.Generator().manual_seed(1))
    assert torch.equal(sample.detach().sum(dim=1), torch.ones(50))
    assert set(sample.detach().unique().round(decimals=5).tolist()) == {0.0, 1.0}
    sample[:, 0].sum().backward()
    assert float(logits.grad.abs().sum()) > 0


def test_samples_follow_the_softmax():
    logits = torch.tensor([[2.0, 0.0, -1.0]]).expand(20_000, 3)
    share = sample_straight_through(logits, 0.1, torch.Generator().manual_seed(0)).mean(dim=0)
    torch.testing.assert_close(share, logits[0].softmax(dim=0), atol=0.02, rtol=0)


def explicit_greedy(counts, sizes, lam, budget):
    """Items (t, s) by value over weight, as the paper's Algorithm 1 fills its knapsack."""
    total = float(sizes.sum())
    items = []
    for t, s in itertools.product(range(counts.shape[0]), range(counts.shape[1])):
        value = float(counts[t, s] - lam * (sizes[t] - counts[t, s]))
        weight = float(sizes[t]) / total
        if weight and value > 0:
            items.append((value / weight, value, weight, (t, s)))
    items.sort(key=lambda item: -item[0])
    result, cost = set(), 0.0
    for _, _, weight, item in items:
        if cost + weight > budget + 1e-9:
            break
        result.add(item)
        cost += weight
    return result


@pytest.mark.parametrize("budget", [3.0, 6.0, 12.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_closed_form_equals_the_explicit_greedy_knapsack(budget, seed):
    _, labels = make_problem(200, seed)
    clusters_of_rows = torch.randint(0, 5, (200,), generator=torch.Generator().manual_seed(seed))
    counts, sizes = (
        count_best_classes(clusters_of_rows, labels, 5),
        torch.bincount(clusters_of_rows, minlength=5).float(),
    )
    options = ScreenOptions(clusters=5, budget=budget, lam=0.01, smoothing=0.0)
    result = fill_budget(counts / sizes[:, None], sizes / sizes.sum(), options)
    expected = explicit_greedy(counts, sizes, 0.01, budget)
    frequency = lambda pairs: sorted(round(float(counts[t, s] / sizes[t]), 6) for t, s in pairs)  # noqa: E731
    ours = {tuple(pair) for pair in result.nonzero().tolist()}
    assert frequency(ours) == frequency(expected)  # equal frequencies may be taken in another order


@pytest.mark.parametrize("seed", range(4))
def test_closed_form_is_near_the_exact_knapsack(seed):
    """Against a dynamic programme over whole weights (cluster sizes)."""
    _, labels = make_problem(120, seed)
    clusters_of_rows = torch.randint(0, 3, (120,), generator=torch.Generator().manual_seed(seed))
    counts, sizes = (
        count_best_classes(clusters_of_rows, labels, 3),
        torch.bincount(clusters_of_rows, minlength=3).float(),
    )
    lam, budget = 0.01, 15.0
    value = counts - lam * (sizes[:, None] - counts)
    best = torch.zeros(int(budget * 120) + 1)
    for t, s in itertools.product(range(3), range(CLASSES)):
        if value[t, s] > 0:
            weight = int(sizes[t])
            best[weight:] = torch.maximum(best[weight:], best[:-weight].clone() + value[t, s])
    choice = fill_budget(
        counts / sizes[:, None], sizes / 120, ScreenOptions(clusters=3, budget=budget, lam=lam, smoothing=0)
    )
    assert float(value[choice].sum()) >= 0.99 * float(best[-1])


def test_training_beats_its_own_start_at_equal_candidates():
    contexts, labels = make_problem(4000)
    options = ScreenOptions(clusters=12, budget=12, rounds=4, epochs=3, batch=128)
    history = train_screen(contexts, labels, options).history
    assert history[-1]["candidates"] == pytest.approx(history[0]["candidates"], rel=0.05)
    assert 1 - history[-1]["p"] < 0.9 * (1 - history[0]["p"])


def test_the_same_seed_gives_the_same_screen_and_a_checkpoint_resumes_to_it(tmp_path):
    contexts, labels = make_problem()
    options = ScreenOptions(clusters=6, budget=12, rounds=3, epochs=1)
    whole = train_screen(contexts, labels, options)
    calls = []

    def stop(stage, done, total):
        if stage == "screen" and done == 2:
            calls.append(done)
            raise KeyboardInterrupt

    path = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        train_screen(contexts, labels, options, progress=stop, checkpoint=path)
    again = train_screen(contexts, labels, options, checkpoint=path)
    assert calls == [2]
    assert torch.equal(again.vectors, whole.vectors)
    assert all(torch.equal(a, b) for a, b in zip(again.sets, whole.sets, strict=True))


def test_a_checkpoint_of_other_contexts_is_not_taken(tmp_path):
    contexts, labels = make_problem()
    options, path = ScreenOptions(clusters=6, budget=12, rounds=2, epochs=1), tmp_path / "state.pt"
    train_screen(contexts, labels, options, checkpoint=path)
    others = contexts.flip(0)
    again = train_screen(others, labels, options, checkpoint=path)
    assert torch.equal(again.vectors, train_screen(others, labels, options).vectors)


def test_a_checkpoint_of_another_background_is_not_taken(tmp_path):
    contexts, labels = make_problem()
    options, path = ScreenOptions(clusters=6, budget=12, rounds=2, epochs=1), tmp_path / "state.pt"
    rows = torch.arange(len(contexts))
    background = Background(rows, (labels.ids.int() + 7) % labels.classes, torch.full(labels.ids.shape, 2.0))
    start = train_screen(contexts, labels, options, checkpoint=path)
    again = train_screen(contexts, labels, options, checkpoint=path, background=background)
    alone = train_screen(contexts, labels, options, background=background)
    assert not torch.equal(start.vectors, alone.vectors)
    assert torch.equal(again.vectors, alone.vectors)


def test_scaling_keeps_the_choice_and_sets_the_confidence():
    contexts, _ = make_problem()
    start = spherical_kmeans(contexts, 7, 0)
    sharp = sharpen_vectors(start, contexts, 0.8)
    assert torch.equal((contexts @ start.T).argmax(dim=1), (contexts @ sharp.T).argmax(dim=1))
    assert float((contexts @ sharp.T).softmax(dim=1).max(dim=1).values.mean()) == pytest.approx(0.8, abs=0.01)


def test_always_list_is_in_every_set():
    _, labels = make_problem()
    clusters_of_rows = torch.zeros(400, dtype=torch.int64)
    sets = choose_candidate_sets(clusters_of_rows, labels, ScreenOptions(clusters=4, budget=10), torch.tensor([1, 58]))
    assert all({1, 58} <= set(ids.tolist()) for ids in sets)


@settings(max_examples=25, deadline=None)
@given(
    clusters=st.integers(1, 12),
    rows=st.integers(12, 40),
    equal=st.booleans(),
    budget=st.floats(DEPTH, 40),
    smoothing=st.floats(0, 10),
    everything=st.booleans(),
)
def test_any_problem_gives_sets_that_can_answer(clusters, rows, equal, budget, smoothing, everything):
    contexts, labels = make_problem(rows)
    if equal:
        contexts, labels = contexts[:1].expand(rows, DIM).clone(), BestClasses(labels.ids[:1].expand(rows, -1), CLASSES)
    options = ScreenOptions(clusters=clusters, budget=budget, smoothing=smoothing, rounds=1, epochs=1)
    always = torch.arange(CLASSES) if everything else None
    screen = train_screen(contexts, labels, options, always)
    assert len(screen.sets) == clusters
    for ids in screen.sets:
        assert len(ids) >= DEPTH
        assert torch.equal(ids, ids.unique())
        assert not everything or len(ids) == CLASSES
    assert torch.isfinite(screen.vectors).all()
