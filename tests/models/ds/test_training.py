"""Training of a Doubly Sparse Softmax: pruning, mitosis, memory, resuming."""

from dataclasses import replace

import pytest
import torch
from shortlist_models import FullSoftmax
from shortlist_models.ds.growth import Growth
from shortlist_models.ds.options import Examples, TrainOptions
from shortlist_models.ds.softmax import DSOptions
from shortlist_models.ds.training import Run, train

pytestmark = pytest.mark.slow

GROUPS, EACH, DIM = 4, 10, 8
CLASSES = GROUPS * EACH
QUICK = TrainOptions(
    experts=4, rounds=2, final_rounds=4, tuning_rounds=1, round_steps=46, expert_batch=32, batch=64,
    learning_rate=0.02, tuning_rate=0.02,
    lasso=0.03, prune_steps=5, tolerance=0.02, threshold=0.5, noise=4.0,
)  # fmt: skip


def problem(rows=1500, seed=0, noise=0.3):
    """Contexts around a centre of each class; classes in well separated groups."""
    random = torch.Generator().manual_seed(7)
    groups = 4 * torch.randn(GROUPS, 1, DIM, generator=random)
    centres = (groups + torch.randn(GROUPS, EACH, DIM, generator=random)).reshape(CLASSES, DIM)
    random = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, CLASSES, (rows,), generator=random)
    return Examples(centres[targets] + noise * torch.randn(rows, DIM, generator=random), targets)


def first_layer(examples):
    """A dense softmax fitted for a while."""
    weight = torch.zeros(CLASSES, DIM, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(examples.contexts @ weight.T, examples.targets).backward()
        optimizer.step()
    return FullSoftmax(weight.detach())


examples, validation = problem(), problem(400, 1)
dense = first_layer(examples)


def test_mitosis_prunes_within_its_memory_and_keeps_its_answers():
    training = train(dense, examples, validation, QUICK)
    last = training.history[-1]
    assert training.history[0]["experts"] == 2
    assert last["experts"] == 4
    one = 4 * 4 * (CLASSES * DIM + CLASSES)
    assert training.peak_bytes <= 3.25 * one * 1.1  # gates weigh more than nothing in so small a layer
    assert last["speedup"] > 1.5
    assert set(training.module.ids.tolist()) == set(range(CLASSES))
    accuracy = float((dense.logits(validation.contexts).argmax(dim=1) == validation.targets).float().mean())
    assert last["top1"] > accuracy - 0.05


def test_without_the_constraint_more_is_pruned():
    options = TrainOptions(**vars(QUICK) | {"tolerance": 1.0, "threshold": 9.0, "lasso": 0.3})
    without = train(dense, examples, validation, options, DSOptions(keep_one=False)).module
    with_constraint = train(dense, examples, validation, options).module
    assert len(without.ids) < len(with_constraint.ids)
    assert set(with_constraint.ids.tolist()) == set(range(CLASSES))


def test_the_same_seed_gives_the_same_head_and_one_stopped_half_way_resumes_to_it(tmp_path):
    whole = train(dense, examples, validation, QUICK)
    again = train(dense, examples, validation, QUICK)
    stops = []

    def stop(stage, done, total):
        if stage.startswith("DS-4") and done == total // 2:
            stops.append(stage)
            raise KeyboardInterrupt

    path = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        train(dense, examples, validation, QUICK, progress=stop, checkpoint=path)
    training = train(dense, examples, validation, QUICK, checkpoint=path)
    assert len(stops) == 1
    for other in (again, training):
        for name, value in whole.module.state_dict().items():
            assert torch.equal(value, other.module.state_dict()[name]), name
    timeless = lambda history: [{k: v for k, v in record.items() if k != "seconds"} for record in history]  # noqa: E731
    assert timeless(training.history) == timeless(whole.history)
    assert training.peak_bytes == whole.peak_bytes


def test_another_seed_gives_another_head():
    first = train(dense, examples, validation, TrainOptions(**vars(QUICK) | {"experts": 2}))
    second = train(dense, examples, validation, TrainOptions(**vars(QUICK) | {"experts": 2, "seed": 1}))
    assert not torch.equal(first.module.gate, second.module.gate)


def test_short_rounds_prune_too():
    module = train(dense, examples, validation, replace(QUICK, round_steps=8, prune_steps=25, threshold=2.0)).module
    assert module.experts == 4
    assert sum(module.sizes) < 2 * 3.25 * CLASSES


def test_a_stage_that_cannot_shrink_is_refused():
    options = replace(QUICK, round_steps=1, threshold=1e-9)
    with pytest.raises(ValueError, match=f"no row was pruned in 300 rounds, and the {2 * CLASSES} that are left"):
        train(dense, examples, validation, options)


def test_a_training_without_a_finite_loss_ends():
    with pytest.raises(ValueError, match=r"loss is .*: lower the learning rate"):
        train(dense, examples, validation, replace(QUICK, learning_rate=3e38))


def test_seeds_may_be_as_large_as_torch_takes():
    options = TrainOptions(**vars(QUICK) | {"experts": 2, "seed": (1 << 63) - 1, "round_steps": 30})
    assert train(dense, examples, validation, options).module.experts == 2


def test_a_checkpoint_of_other_options_is_not_taken(tmp_path):
    path = tmp_path / "state.pt"
    train(dense, examples, validation, TrainOptions(**vars(QUICK) | {"experts": 2}), checkpoint=path)
    run = Run(dense, examples, validation, QUICK, DSOptions())
    run.resume(path)
    assert run.rows_seen == 0


def test_a_training_is_the_same_on_every_device_and_another_of_a_scaled_or_capped_layer_or_other_validation():
    def name(layer=dense, validation=validation, **changes):
        options = TrainOptions(**vars(QUICK) | {"experts": 1} | changes)
        return Run(layer, examples, validation, options, DSOptions()).fingerprint

    on_gpu = replace(QUICK, experts=1, device="cuda:0")
    run = Run(dense, examples, validation, replace(on_gpu, device="cpu"), DSOptions())
    run.options = on_gpu
    assert run.describe_training(dense) == name()
    parts = dense.weight, dense.bias
    others = FullSoftmax(*parts, logit_scale=2.0), FullSoftmax(*parts, soft_cap=9.0)
    padded = FullSoftmax(*parts, padded=torch.tensor([CLASSES - 1]))
    fewer = Examples(validation.contexts[1:], validation.targets[1:])
    names = {name(), *(name(other) for other in (*others, padded)), name(validation=fewer)}
    assert len(names) == 5


def test_one_expert_is_a_dense_softmax_trained_on():
    options = TrainOptions(**vars(QUICK) | {"experts": 1})
    training = train(dense, examples, validation, options)
    assert training.module.sizes == [CLASSES]
    assert not training.module.gate.any()
    before = float(dense(examples.contexts, examples.targets))
    after = float(
        FullSoftmax(training.module.weight, training.module.bias)(examples.contexts, examples.targets).detach()
    )
    assert after < before


def test_any_number_of_experts_at_once_without_mitosis():
    options = TrainOptions(**vars(QUICK) | {"experts": 3, "mitosis": False})
    assert train(dense, examples, validation, options).module.experts == 3


def test_without_targets_the_dense_layer_is_distilled():
    examples_of_dense = Examples(examples.contexts, dense)
    options = TrainOptions(**vars(QUICK) | {"threshold": None})
    training = train(dense, examples_of_dense, Examples(validation.contexts, dense), options)
    best = dense.logits(validation.contexts).argmax(dim=1)
    result = training.module.topk(validation.contexts, 1)[0][:, 0]
    assert float((result == best).float().mean()) > 0.85


def test_a_collapsed_gate_is_reported_with_what_to_change():
    options = TrainOptions(**vars(QUICK) | {"noise": 1e-6, "experts": 4, "mitosis": False, "round_steps": 3})
    far = Examples(examples.contexts + 1000 * torch.eye(DIM)[0], examples.targets)
    training = train(dense, far, Examples(far.contexts[:100], far.targets[:100]), options, DSOptions(load=0.0))
    assert training.history[-1]["effective_experts"] < 2
    assert len(training.notices) == 1
    assert "the gate collapsed" in training.notices[0]
    assert "raise load (now 0)" in training.notices[0]


@pytest.mark.parametrize("experts", [3, 6, 0, -2])
def test_mitosis_wants_a_power_of_two(experts):
    with pytest.raises(ValueError, match="no power of two"):
        train(dense, examples, validation, TrainOptions(experts=experts))


def test_targets_out_of_range_are_refused():
    with pytest.raises(ValueError, match="targets go from"):
        train(dense, Examples(examples.contexts, examples.targets + 1), validation, QUICK)


def test_no_contexts_are_refused():
    with pytest.raises(ValueError, match="no contexts to train on"):
        train(dense, Examples(examples.contexts[:0], examples.targets[:0]), validation, QUICK)


def test_one_context_is_refused_since_no_experts_can_share_it():
    with pytest.raises(ValueError, match="one context to train on"):
        train(dense, Examples(examples.contexts[:1], examples.targets[:1]), validation, QUICK)


def test_a_coefficient_grows_until_validation_drops():
    growth = Growth(1.0, 2.0, 0.01)
    values = []
    for accuracy in (0.5, 0.52, 0.515, 0.52, 0.50, 0.6):
        values.append(growth.value)
        growth.update(accuracy)
    assert values == [0.0, 1.0, 2.0, 4.0, 8.0, 4.0]
    assert growth.value == 4.0
    growth.update(0.1, must_stop=True)
    assert growth.value == 8.0
    growth.update(0.9, failing=True)
    assert growth.value == 4.0


def test_a_coefficient_waits_where_the_speed_is_enough():
    growth = Growth(1.0, 2.0, 0.01)
    growth.update(0.5)
    growth.update(0.5, enough=True)
    assert growth.value == 1.0
