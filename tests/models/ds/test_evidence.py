"""Classes that hardly any context of a clone wants are dropped at once."""

import pytest
import torch
from shortlist_models.ds.options import TrainOptions
from shortlist_models.ds.softmax import DSOptions
from shortlist_models.ds.training import train

from .test_softmax import CLASSES, EXPERTS, make_contexts, make_module
from .test_training import CLASSES as TOY_CLASSES
from .test_training import QUICK, dense, examples, validation

pytestmark = pytest.mark.slow

SHORT = {"rounds": 1, "final_rounds": 0, "evidence": True, "lasso": 0.0}


def test_evidence_counts_what_every_experts_contexts_want():
    module, contexts = make_module(), make_contexts(300)
    targets = torch.randint(0, CLASSES, (300, 2), generator=torch.Generator().manual_seed(2))
    experts = module.gates(contexts).argmax(dim=1).tolist()
    expected = torch.zeros(EXPERTS, CLASSES)
    for expert, ids in zip(experts, targets.tolist(), strict=True):
        for expert_ids in ids:
            expected[expert, expert_ids] += 1
    assert torch.equal(module.count_evidence(contexts, targets), expected)
    assert module.owners.tolist() == [0] * 4 + [1] * 9 + [2] + [3] * 17


def test_what_is_kept_is_wanted_or_the_last_of_its_class_or_expert():
    module = make_module(options=DSOptions(keep_one=True))
    worth = torch.arange(31.0)
    before = module.ids.clone()
    module.keep_rows(torch.zeros(31, dtype=torch.bool), worth)
    assert sorted(set(module.ids.tolist())) == sorted(set(before.tolist()))
    assert min(module.sizes) == 1
    sparse_module = make_module(options=DSOptions(keep_one=False))
    sparse_module.keep_rows(torch.zeros(31, dtype=torch.bool), worth)
    assert sparse_module.ids.tolist() == [int(before[end - 1]) for end in (4, 13, 14, 31)]


def test_mitosis_by_evidence_reaches_the_speed_asked_for_in_a_few_steps():
    options = TrainOptions(
        **vars(QUICK) | {"rounds": 1, "final_rounds": 0, "evidence": True, "speedup": 2.0, "lasso": 0.0}
    )
    training = train(dense, examples, validation, options, DSOptions(keep_one=False))
    last = training.history[-1]
    assert last["experts"] == 4
    assert last["speedup"] > 1.9
    accuracy = float((dense.logits(validation.contexts).argmax(dim=1) == validation.targets).float().mean())
    assert last["top1"] > accuracy - 0.05
    assert training.peak_bytes <= 3.25 * 4 * 4 * (TOY_CLASSES * 8 + TOY_CLASSES)


def test_a_speed_out_of_reach_ends_with_the_last_copies():
    options = TrainOptions(
        **vars(QUICK) | {"rounds": 1, "final_rounds": 0, "evidence": True, "speedup": 1e3, "lasso": 0.0}
    )
    module = train(dense, examples, validation, options).module
    assert len(module.ids) == TOY_CLASSES
