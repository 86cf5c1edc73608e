"""Tokens a second in turns: what stands in the layer's place is taken away again."""

import numpy as np
import pytest
import torch

from benchmarks.studies.generate import speed
from benchmarks.studies.generate.speed import CEILING, OURS, UNTOUCHED, Cell, compute_pace, list_cells, time_cell

CLASSES = 300
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("beams", [1, 4])
def test_every_contender_generates_as_many_tokens(model, head, beams):
    layer = model.get_output_embeddings()
    prompts = torch.arange(3, 3 + 5 * 4).reshape(5, 4)
    pace = time_cell(model, head, Cell(1, 2, beams), prompts, rounds=3)
    assert set(pace.tokens) == {UNTOUCHED, OURS, CEILING}
    assert min(pace.tokens.values()) > 0
    assert model.get_output_embeddings() is layer


def test_a_constant_gives_the_same_logits_whatever_the_state(model):
    with speed.replace_by_constant(model):
        logits = model(torch.tensor([[3, 4], [5, 6]])).logits
    assert logits.shape == (2, 2, CLASSES)
    assert logits.eq(logits[:1, :1]).all()
    assert len(logits[0, 0].unique()) == CLASSES


def test_ratios_are_medians_of_turns():
    seconds = {UNTOUCHED: np.array([4.0, 4, 9]), CEILING: np.array([1.0, 1, 2]), OURS: np.array([2.0, 1, 2])}
    pace = compute_pace(seconds, 8)
    assert (pace.ratio, pace.ceiling_share) == (4.0, 1.0)
    assert pace.tokens[OURS] == 4.0


def test_prompts_of_each_kind_take_turns():
    prompts = {"python": torch.arange(60).reshape(3, 20), "html": 100 + torch.arange(60).reshape(3, 20)}
    mixed = speed.mix_kinds(prompts)
    assert mixed.shape == (6, speed.PROMPT_TOKENS)
    assert mixed[:, 0].tolist() == [0, 100, 20, 120, 40, 140]


def test_cells_are_of_every_number_of_threads_texts_and_beams():
    assert len({cell.label for cell in list_cells()}) == 8
    assert [Cell(1, 1, 1).classes, Cell(1, 1, 4).classes] == [1, 8]
