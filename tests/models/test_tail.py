"""Terms whose log-sum stands for the classes that are no candidates."""

import pytest
import torch
from shortlist_models import tail
from shortlist_models.full import FullSoftmax
from shortlist_models.tail import TailTerms, fit_terms, start_terms

GENERATOR = torch.Generator().manual_seed(0)
CLASSES, DIM, BEST = 600, 12, 10


@pytest.fixture(scope="module")
def weight():
    centres = torch.randn(20, DIM, generator=GENERATOR)
    return centres.repeat_interleave(CLASSES // 20, 0) + 0.2 * torch.randn(CLASSES, DIM, generator=GENERATOR)


def test_no_terms_add_nothing():
    nothing = TailTerms(torch.empty(0, DIM), torch.empty(0))
    assert nothing(torch.ones(3, DIM)).tolist() == [0, 0, 0]


def test_as_many_terms_as_classes_are_the_whole_sum(weight):
    bias, contexts = torch.randn(CLASSES, generator=GENERATOR), torch.randn(5, DIM, generator=GENERATOR)
    wanted = FullSoftmax(weight, bias).logits(contexts).logsumexp(dim=1)
    torch.testing.assert_close(start_terms(weight, bias, torch.arange(CLASSES), CLASSES)(contexts), wanted)


def test_fitted_terms_give_the_normaliser(weight, monkeypatch):
    monkeypatch.setattr(tail, "STEPS", 600)
    contexts = torch.randn(3000, DIM, generator=GENERATOR) * 1.5
    logits = contexts @ weight.T
    best = logits.topk(BEST, dim=1)
    inside = best.values.logsumexp(dim=1)
    outside = logits.scatter(1, best.indices, -torch.inf).logsumexp(dim=1)
    start = start_terms(weight, None, torch.arange(CLASSES), 20)
    fitted = fit_terms(start, contexts[:2500], inside[:2500], logits[:2500].logsumexp(dim=1), 0)
    before, after = (
        (torch.logaddexp(inside, one(contexts)) - logits.logsumexp(dim=1))[2500:].abs().mean()
        for one in (start, fitted)
    )
    linear = torch.linalg.lstsq(contexts[:2500], outside[:2500, None] - outside[:2500].mean()).solution[:, 0]
    guess = contexts @ linear + outside[:2500].mean()
    by_line = (torch.logaddexp(inside, guess) - logits.logsumexp(dim=1))[2500:].abs().mean()
    assert after < before * 0.6
    assert after < by_line / 3
