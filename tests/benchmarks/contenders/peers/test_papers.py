"""Peers from papers: what they find at their most thorough, at cheaper settings, and on tiny layers."""

from itertools import product

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.common.truth import compute_best
from benchmarks.contenders.registry import PAPER_PEERS, QUANTISED_PEERS
from tests.support.contenders import check_possible, fit_contender, make_fading_layer, pick_builds

pytestmark = pytest.mark.slow

EVERYTHING = {"probes": 10**6, "opened": 10**6, "budget": 10**6, "rescored": 10**6}
EXACT = {"PCA-MIPS", "LSH-MIPS", "FlashHead", "int8 rows, onnxruntime"}  # when everything is opened
CASES = [
    pytest.param(kind, basis, id=f"{kind.name}, {basis}")
    for kind in (*PAPER_PEERS, *QUANTISED_PEERS)
    for basis in pick_builds(kind, make_fading_layer()[0])
]


@pytest.fixture(autouse=True)
def one_thread():
    """Products this small only wait for other threads."""
    with threadpool_limits(1):
        yield


def share(ids, true):
    return (ids[:, :, None] == true[:, None, :]).any(axis=1).mean()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_the_most_thorough_setting_finds_the_exact_top_five(kind, basis, bias):
    dense, contexts = make_fading_layer(bias=bias)
    contender = fit_contender(kind, pick_builds(kind, dense)[basis], dense, contexts[:1000])
    rows = contexts[1000:]
    true = compute_best(dense, rows).ids[:, :5]
    contender.use(contender.settings()[-1])
    result = contender.topk(rows, 5)
    check_possible(result, dense)
    assert share(result, true) >= 0.95
    single = np.concatenate([contender.topk(row[None], 5) for row in rows])
    assert (single == result).mean() > 0.99
    assert dense.weight.nbytes < contender.size() < 30 * dense.weight.nbytes


@pytest.mark.parametrize(("kind", "basis"), [case for case in CASES if case.values[0].name in EXACT])
def test_with_everything_opened_the_answer_is_exact(kind, basis):
    dense, contexts = make_fading_layer()
    contender = fit_contender(kind, pick_builds(kind, dense)[basis], dense, contexts[:1000])
    contender.use(EVERYTHING)
    result = contender.topk(contexts[1000:], 5)
    assert (result == compute_best(dense, contexts[1000:]).ids[:, :5]).mean() > 0.995


@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_cheaper_settings_find_less(kind, basis):
    dense, contexts = make_fading_layer()
    contender = fit_contender(kind, pick_builds(kind, dense)[basis], dense, contexts[:1000])
    true = compute_best(dense, contexts[1000:]).ids
    shares = []
    for setting in contender.settings():
        contender.use(setting)
        shares.append(share(contender.topk(contexts[1000:], 10), true))
    assert (np.diff(shares) >= -0.002).all()


@pytest.mark.parametrize("classes", [52, 5])
@pytest.mark.parametrize(("kind", "basis"), CASES)
def test_every_setting_answers_only_what_is_possible_on_a_tiny_layer(kind, basis, classes):
    dense, contexts = make_fading_layer(classes, dim=7)
    for build in kind.grid(dense):
        contender = fit_contender(kind, build, dense, contexts)
        for setting, k in product(contender.settings(), (1, 60)):
            contender.use(setting)
            result = contender.topk(contexts[:3], k)
            assert result.shape == (3, k)
            check_possible(result, dense)
