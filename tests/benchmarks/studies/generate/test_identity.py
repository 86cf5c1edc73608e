"""Whose continuations are the model's own, kept, and with what margin the others are not."""

import pytest
import torch

from benchmarks.common.runs import Store
from benchmarks.studies.generate import identity
from benchmarks.studies.generate.identity import Contender, continue_prompts, count_same, list_differences

PROMPTS = {"prose": torch.tensor([[3, 4, 5], [6, 7, 8]]), "code": torch.tensor([[9, 10, 11]])}
CLASSES = 300
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("beams", [1, 4])
def test_exact_answers_continue_as_the_model_does(model, head, tmp_path, beams, monkeypatch):
    store = Store(tmp_path / "tokens")
    own = continue_prompts(model, Contender("untouched", beams), PROMPTS, store)
    other = continue_prompts(model, Contender("exact", beams, head, exact=True), PROMPTS, store)
    assert {kind: rows.shape for kind, rows in own.items()} == {
        kind: (len(rows), identity.CONTINUED_TOKENS[beams]) for kind, rows in PROMPTS.items()
    }
    assert count_same(PROMPTS, own, other) == 1
    assert list_differences(model, PROMPTS, own, other, beams) == []
    monkeypatch.setattr(identity, "continue_rows", None)  # what is stored is not generated again
    assert (
        continue_prompts(model, Contender("untouched", beams), PROMPTS, store)["code"].tolist() == own["code"].tolist()
    )


def test_a_difference_has_the_model_s_margin(model, tmp_path):
    own = continue_prompts(model, Contender("untouched", 1), PROMPTS, Store(tmp_path))
    other = {kind: rows.clone() for kind, rows in own.items()}
    other["prose"][1, 4] = (other["prose"][1, 4] + 1) % CLASSES
    [difference] = list_differences(model, PROMPTS, own, other, 1)
    assert (difference.kind, difference.prompt, difference.place) == ("prose", 1, 4)
    assert difference.margin > 0
    assert count_same(PROMPTS, own, other) == pytest.approx(2 / 3)
