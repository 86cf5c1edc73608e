"""A Mixtape over Penn Treebank's contexts: served answers are the module's, in float64, on words of test."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.mixtures.mixtape import Mixtape

from benchmarks.datasets.ptb import load_layer, run_lstm
from benchmarks.papers.adaptive.lazy import make_float64_distribution, measure_agreement
from benchmarks.papers.mixtape.reproduce import answer_exactly
from benchmarks.papers.mixtape.times import export_heads

pytestmark = pytest.mark.slow

FIT_WORDS, QUICK_ROWS = 5_000, 512
NOISE = 0.05  # of components and gates


def make_mixture(dense):
    """A Mixtape of the base model's rows, whose components are nearly the context."""
    torch.manual_seed(0)
    module = Mixtape(dense.dim, dense.classes)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(dense.weight))
        module.bias.copy_(torch.from_numpy(dense.bias))
        module.hidden.weight.normal_(std=NOISE).add_(torch.eye(dense.dim).repeat(module.components, 1))
    return module.eval()


def compute_states(data, split, words=None):
    """Contexts [words, 200] of the first words of a split, all of them by default."""
    ids = torch.from_numpy(np.load(data / "ptb" / f"{split}.npy")[:words].astype(np.int64))
    return run_lstm(load_file(data / "ptb" / "lstm200.safetensors"), ids, split)[0]


@pytest.fixture(scope="module")
def served(data, tmp_path_factory):
    """The head, and its module in float64."""
    dense = load_layer(data / "ptb")
    module, fit = make_mixture(dense), Contexts(compute_states(data, "valid", FIT_WORDS).numpy())
    head, _ = export_heads("ptb", dense, fit, module, tmp_path_factory.mktemp("mixtape"))
    return head, {"module": make_float64_distribution(module)}


def test_exact_answers_are_the_modules_and_searched_ones_nearly(served, data):
    head, truths = served
    rows = compute_states(data, "test", 2 * QUICK_ROWS)[:QUICK_ROWS]
    agreement = measure_agreement(answer_exactly(head), truths, rows, [1, 2, 10, 100])["module"]
    assert agreement.wrong == 0
    assert agreement.error < 5e-5
    exact, searched = (head.topk(rows.numpy(), 5, exact=way).ids[:, 0] for way in (True, False))
    assert (exact == searched).mean() > 0.97


@pytest.mark.long
def test_exact_answers_are_the_modules_on_all_words_of_test(served, data):
    head, truths = served
    rows = compute_states(data, "test")
    assert len(rows) > 80_000
    for some, depths in ((rows[:QUICK_ROWS], range(1, 101)), (rows, [100])):
        agreement = measure_agreement(answer_exactly(head), truths, some, depths)["module"]
        assert agreement.answers == len(some) * sum(depths)
        assert agreement.wrong == 0
        assert agreement.error < 5e-5
