"""Mixtape against a transcription of its equations, its rank, its training alone and with a caller's body."""

import math

import pytest
import torch
from shortlist_models.adaptive.training import TrainOptions, train_head
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.mixtures.mos import MixtureOfSoftmaxes
from torch import nn

CLASSES, DIM = 30, 4


def transcribe(module, context):
    """log p(. | c) of one context by equations 2 to 6, class by class, for K = 4."""
    state, order, probabilities = module.state_dict(), module.order.tolist(), {}
    vectors = torch.tanh(state["hidden.weight"] @ context + state["hidden.bias"]).view(4, DIM)
    tanh = torch.tanh(state["gate_hidden.weight"] @ context + state["gate_hidden.bias"]).view(3, -1)
    for place, class_id in enumerate(order):
        gates = []
        for i in range(3):
            logit = state["shared_gate.weight"][i] @ context + state["shared_gate.bias"][i]
            if place < module.frequent:
                logit = logit + state["gate_weight"][place] @ tanh[i] + state["gate_bias"][i, place]
            gates.append(1 / (1 + math.exp(-float(logit))))
        one, two, three = gates
        priors = [one * two, one * (1 - two), (1 - one) * three, (1 - one) * (1 - three)]
        logit = sum(
            prior * float(vector @ state["weight"][place]) for prior, vector in zip(priors, vectors, strict=True)
        )
        probabilities[class_id] = math.exp(logit + float(state["bias"][place]))
    total = sum(probabilities.values())
    return [math.log(probabilities[class_id] / total) for class_id in range(CLASSES)]


@pytest.mark.parametrize("frequent", [3, CLASSES])
def test_log_probabilities_and_loss_are_the_equations(frequent):
    torch.manual_seed(0)
    module = Mixtape(DIM, CLASSES, 4, frequent, 5, torch.randperm(CLASSES)).double()
    nn.init.normal_(module.gate_bias)
    contexts, targets = torch.randn(6, DIM, dtype=torch.float64), torch.randint(CLASSES, (6,))
    logprobs = module.log_prob(contexts)
    due = torch.tensor([transcribe(module, context) for context in contexts], dtype=torch.float64)
    torch.testing.assert_close(logprobs, due)
    torch.testing.assert_close(module(contexts, targets), -due.gather(1, targets[:, None]).mean())


@pytest.mark.parametrize(("components", "tree"), [(2, True), (4, True), (1, False), (3, False)])
def test_a_state_dict_says_all_sizes(components, tree):
    module = Mixtape(DIM, CLASSES, components, 7, 5, torch.randperm(CLASSES), tree=tree)
    same = Mixtape.from_state(module.state_dict())
    contexts = torch.randn(3, DIM)
    assert torch.equal(same.log_prob(contexts), module.log_prob(contexts))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"weight": torch.zeros(3)}, "has matrices weight, hidden.weight"),
        ({"hidden.weight": torch.zeros(3, DIM)}, "has d rows for each component"),
        ({"bias": torch.zeros(3)}, "do not fit each other"),
        ({"gate_weight": torch.zeros(CLASSES + 1, 5)}, "frequent=31 must be from 1 to the 30 classes"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        Mixtape.from_state(Mixtape(DIM, CLASSES, gate_width=5).state_dict() | change)


def test_noise_is_of_training_alone():
    module = Mixtape(DIM, CLASSES, gate_noise=1.0)
    contexts, targets = torch.randn(5, DIM), torch.randint(CLASSES, (5,))
    assert module(contexts, targets) != module(contexts, targets)
    module.eval()
    assert module(contexts, targets) == module(contexts, targets)


def make_problem(rank=12, contexts=40):
    """Inputs [n, d], and logits [n, V] of this rank, which no linear layer over d dimensions has."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(contexts, DIM, generator=generator)
    return inputs, 1.5 * torch.randn(contexts, rank, generator=generator) @ torch.randn(
        rank, CLASSES, generator=generator
    ) / rank**0.5


def measure_rank(logprobs):
    """The rank [n, V] of log-probabilities without their mean over classes, which the normaliser shifts."""
    return int(torch.linalg.matrix_rank(logprobs.double() - logprobs.double().mean(dim=1, keepdim=True), rtol=1e-4))


@pytest.mark.slow
def test_mixtures_reach_a_rank_that_softmax_cannot():
    """A body of one hidden layer is trained with each head, as a caller would."""
    torch.set_num_threads(1)  # such small products are faster so, much so beside other work
    inputs, logits = make_problem()
    true, rank = logits.log_softmax(dim=1), measure_rank(logits)
    assert rank == 12
    ranks, gaps = {}, {}
    torch.manual_seed(0)
    heads = {
        "softmax": nn.Linear(DIM, CLASSES),
        "mixtape": Mixtape(DIM, CLASSES, 4, CLASSES, 16),
        "mos": MixtureOfSoftmaxes(DIM, CLASSES, 4),
    }
    for name, head in heads.items():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(DIM, 64), nn.Tanh(), nn.Linear(64, DIM))
        compute = (lambda rows, head=head: head(rows).log_softmax(dim=1)) if name == "softmax" else head.log_prob
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
        for _ in range(300):
            loss = (true.exp() * (true - compute(body(inputs)))).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ranks[name], gaps[name] = measure_rank(compute(body(inputs)).detach()), loss.item()
    assert ranks["softmax"] <= DIM + 1  # the bias is a dimension more
    assert min(ranks["mixtape"], ranks["mos"]) >= rank
    assert gaps["mixtape"] < gaps["softmax"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: Mixtape(DIM, CLASSES), lambda: MixtureOfSoftmaxes(DIM, CLASSES, 3)])
def test_training_on_contexts_learns_and_resumes_to_the_same_head(make, tmp_path):
    inputs, logits = make_problem(contexts=600)
    targets = logits.softmax(dim=1).multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
    options, path = TrainOptions(epochs=3, batch=50, learning_rate=0.02), tmp_path / "state.pt"
    torch.manual_seed(0)
    whole = make()
    history = train_head(whole, whole, inputs, targets, options)
    assert history == sorted(history, reverse=True)

    def stop(stage, done, total):
        if done == 700:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    part = make()
    with pytest.raises(KeyboardInterrupt):
        train_head(part, part, inputs, targets, options, stop, path)
    torch.manual_seed(1)
    resumed = make()
    assert train_head(resumed, resumed, inputs, targets, options, checkpoint=path) == history
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_noise_of_gates_is_the_same_where_a_training_goes_on_and_other_noise_is_another_training(tmp_path):
    inputs, logits = make_problem(contexts=200)
    options, path, calls = TrainOptions(epochs=3, batch=50), tmp_path / "state.pt", []

    def learn(noise, checkpoint=None, stop=None):
        torch.manual_seed(0)
        head = Mixtape(DIM, CLASSES, gate_noise=noise)
        torch.manual_seed(len(calls))  # what else has been drawn in the process must not matter
        calls.append(noise)

        def halt(stage, done, total):
            if done == stop:
                raise KeyboardInterrupt

        train_head(head, head, inputs, logits.argmax(dim=1), options, halt, checkpoint)
        return head.state_dict()

    whole = learn(0.5)
    with pytest.raises(KeyboardInterrupt):
        learn(0.5, path, stop=300)
    torch.testing.assert_close(learn(0.5, path), whole, rtol=0, atol=0)
    torch.testing.assert_close(learn(0.0, path), learn(0.0), rtol=0, atol=0)
