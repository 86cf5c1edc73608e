"""Method grouped for layers in which one class is best in most rows, as the blank of a recogniser is."""

import numpy as np
import pytest
import torch
from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.methods.grouped import GroupedOptions, find_leaders
from shortlist_exporter.methods.registry import METHODS

CLASSES, DIM, BLANK, PARTS = 4000, 64, 7, 100
OPTIONS = {"opened": "400"}


def make_recogniser(biased: bool) -> tuple[Dense, np.ndarray]:
    """A layer of characters that are alike by their parts, and a blank that is best in most of its 3,000 contexts.

    Scores are those of classes of normal contexts around their centres; without a bias a constant column holds it.
    """
    random = np.random.default_rng(0)
    parts, spread = random.standard_normal((PARTS, DIM)), np.geomspace(2, 0.4, DIM)
    centres = parts[random.integers(0, PARTS, CLASSES)] + random.standard_normal((CLASSES, DIM))
    centres *= 3.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    is_blank = random.random(3000) < 0.8
    classes = np.where(is_blank, BLANK, random.integers(0, CLASSES, 3000))
    contexts = centres[classes] + spread * random.standard_normal((3000, DIM))
    prior = np.where(np.arange(CLASSES) == BLANK, np.log(0.8), np.log(0.2 / CLASSES))
    weight, bias = centres / spread**2, prior - (centres**2 / spread**2).sum(axis=1) / 2
    if not biased:
        weight, contexts = np.column_stack([weight, bias / 4]), np.column_stack([contexts, np.full(3000, 4)])
    return Dense(weight.astype("f4"), bias.astype("f4") if biased else None), contexts.astype("f4")


@pytest.mark.parametrize("biased", [True, False])
def test_a_class_that_is_best_in_most_rows_is_never_lost(biased):
    dense, contexts = make_recogniser(biased)
    fitted = METHODS["grouped"].fit(dense, contexts[:2000], OPTIONS, 0)
    rows = torch.from_numpy(contexts[2000:])
    of_blank = dense.module.logits(rows).argmax(dim=1) == BLANK
    assert of_blank.sum() > 700
    ids, _ = fitted.module.topk(rows[of_blank], 1)
    assert (ids == BLANK).all()


def test_only_classes_that_are_best_in_many_rows_are_a_group_each():
    dense, contexts = make_recogniser(True)
    real, options = torch.arange(CLASSES), GroupedOptions(opened=1300, groups=62)
    leaders = find_leaders(dense, torch.from_numpy(contexts[:500]), real, options)
    assert leaders.tolist() == [BLANK]
    assert find_leaders(dense, torch.from_numpy(contexts[:500]), real, GroupedOptions(opened=CLASSES)) is None
