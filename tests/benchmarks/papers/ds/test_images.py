"""The figures of the character page."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shortlist.evaluation.ranking import TrueClasses
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.common.truth import Truth
from benchmarks.datasets.registry import DataSet
from benchmarks.papers.ds.images import (
    ALL_EXPERTS,
    CHARACTER_TRAINING,
    VALID_EACH,
    make_options,
    measure_accuracies,
    split_images,
)

pytestmark = pytest.mark.slow


def test_accuracies_by_depth():
    ids = torch.tensor([[4, 1, 2, 3, 0, 9], [1, 2, 3, 5, 6, 4], [0, -1, -1, -1, -1, -1]])
    assert measure_accuracies(ids, torch.tensor([4, 4, 7])) == pytest.approx((1 / 3, 1 / 3, 2 / 3))


def test_the_last_images_of_every_character_are_held_out():
    each, classes = 5, 3
    targets = np.tile(np.arange(classes), each)
    rows = np.arange(each * classes, dtype=np.float32)[:, None]
    dense = Dense(np.ones((classes, 1), np.float32))
    data = DataSet(
        "x", dense, Contexts(rows, targets), Truth(rows, TrueClasses.without_ties(targets[:, None]), targets)
    )
    training, validation = split_images(data)
    assert len(validation.contexts) == VALID_EACH * classes
    assert torch.bincount(validation.targets).tolist() == [VALID_EACH] * classes
    assert torch.equal(torch.cat([training.contexts, validation.contexts]), torch.from_numpy(rows))


def test_dense_is_trained_for_as_many_rounds_as_the_largest():
    stages = max(ALL_EXPERTS).bit_length() - 2  # clonings before the last stage: from 2 experts to 64
    rounds = stages * CHARACTER_TRAINING.rounds + CHARACTER_TRAINING.final_rounds + CHARACTER_TRAINING.tuning_rounds
    dense = make_options(1)
    assert dense.final_rounds + dense.tuning_rounds == rounds
