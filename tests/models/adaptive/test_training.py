"""Training of heads: learns, repeats itself, goes on from a checkpoint."""

import pytest
import torch
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import AdaptiveSoftmax, order_by_frequency
from shortlist_models.adaptive.training import TrainOptions, train_head

pytestmark = pytest.mark.slow

CLASSES, DIM = 80, 16


def make_problem(rows=3000, never=()):
    """Targets drawn from a softmax whose biases fall as 1 / rank; classes `never` do not occur."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn(rows, DIM, generator=generator)
    bias = -1.2 * torch.arange(1, CLASSES + 1).float().log()
    bias[list(never)] = -torch.inf
    logits = contexts @ torch.randn(DIM, CLASSES, generator=generator) * 0.5 + bias
    return contexts, logits.softmax(dim=1).multinomial(1, generator=generator)[:, 0], logits


def make_module(kind, targets):
    torch.manual_seed(0)
    order = order_by_frequency(targets, CLASSES)
    if kind == "adaptive":
        module = AdaptiveSoftmax(DIM, CLASSES, [20, 50], 2.0, True, order)
        return module, lambda contexts, gold: module(contexts, gold).loss
    module = DSoftmax(DIM, CLASSES, [20, 50], [16, 8, 4], order)
    return module, module


def compute_perplexity(logprobs, targets):
    return float(logprobs.gather(1, targets[:, None]).double().mean().neg().exp())


@pytest.mark.parametrize("kind", ["adaptive", "dsoftmax"])
def test_training_comes_near_the_truth(kind):
    contexts, targets, logits = make_problem()
    module, loss = make_module(kind, targets)
    history = train_head(module, loss, contexts, targets, TrainOptions(epochs=8, batch=64, learning_rate=0.02))
    assert history == sorted(history, reverse=True)
    best = compute_perplexity(logits.log_softmax(dim=1), targets)
    unigram = torch.bincount(targets, minlength=CLASSES).float().clamp(min=0.5)
    guess = float((unigram / unigram.sum()).log()[targets].mean().neg().exp())
    with torch.inference_mode():
        assert compute_perplexity(module.log_prob(contexts), targets) < best + 0.3 * (guess - best)


@pytest.mark.parametrize("kind", ["adaptive", "dsoftmax"])
def test_the_same_seed_gives_the_same_head_and_a_checkpoint_resumes_to_it(kind, tmp_path):
    contexts, targets, _ = make_problem(600)
    options, path = TrainOptions(epochs=3, batch=100, seed=4), tmp_path / "state.pt"
    whole, loss = make_module(kind, targets)
    history = train_head(whole, loss, contexts, targets, options)

    def stop(stage, done, total):
        if done == 700:
            raise KeyboardInterrupt

    partial, loss = make_module(kind, targets)
    with pytest.raises(KeyboardInterrupt):
        train_head(partial, loss, contexts, targets, options, stop, path)
    again, loss = make_module(kind, targets)
    steps = []
    result = train_head(again, loss, contexts, targets, options, lambda *progress: steps.append(progress), path)
    assert result == pytest.approx(history)
    assert steps[0][1] == 700
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value)


def test_a_checkpoint_of_other_options_or_shapes_is_not_taken(tmp_path):
    contexts, targets, _ = make_problem(200)
    path = tmp_path / "state.pt"
    module, loss = make_module("adaptive", targets)
    train_head(module, loss, contexts, targets, TrainOptions(epochs=1), checkpoint=path)
    other, loss = make_module("dsoftmax", targets)
    assert len(train_head(other, loss, contexts, targets, TrainOptions(epochs=1), checkpoint=path)) == 1
    longer, loss = make_module("adaptive", targets)
    steps = []
    train_head(longer, loss, contexts, targets, TrainOptions(epochs=2), lambda *one: steps.append(one), path)
    assert steps[0][1] == 200


def test_a_training_without_a_finite_loss_ends_and_leaves_no_checkpoint(tmp_path):
    contexts, targets, _ = make_problem(200)
    module, loss = make_module("dsoftmax", targets)
    options = TrainOptions(epochs=2, batch=50, learning_rate=1e30)
    with pytest.raises(ValueError, match=r"loss is .*: lower the learning rate \(now 1e\+30\)"):
        train_head(module, loss, contexts, targets, options, checkpoint=tmp_path / "state.pt")
    assert not list(tmp_path.iterdir())


def test_classes_that_never_occur_are_learnt_as_unlikely():
    never = [0, 3, 40]
    contexts, targets, _ = make_problem(never=never)
    module, loss = make_module("adaptive", targets)
    assert not set(never) & set(targets.tolist())
    train_head(module, loss, contexts, targets, TrainOptions(epochs=4, batch=64, learning_rate=0.02))
    logprobs = module.log_prob(contexts).detach()
    assert torch.isfinite(logprobs).all()
    torch.testing.assert_close(logprobs.exp().sum(dim=1), torch.ones(len(contexts)), atol=1e-4, rtol=0)
    assert float(logprobs[:, never].exp().mean()) < 0.2 / CLASSES
