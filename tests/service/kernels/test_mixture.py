"""Compiled fronts of plan `mixture`, of every target: what front.onnx gives, and the same bits; answers of one row."""

import numpy as np
import pytest
import shortlist
import torch
from shortlist.errors import BadInput
from shortlist.kernels.native import library

from tests.support.heads.mixtape import SIZES, make, make_module
from tests.support.kernels import list_targets
from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

FORMS = {"tree": (4, True), "deep tree": (16, True), "softmax": (3, False)}
K = 5


@pytest.fixture(scope="module", params=FORMS)
def bundle(request, tmp_path_factory):
    """The folder of a head, and its module."""
    module = make_module(*SIZES["loops"], *FORMS[request.param])
    return make(tmp_path_factory.mktemp("mixture"), "loops", module, report=False)[0].folder, module


@pytest.fixture(params=list_targets())
def head(request, bundle, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield shortlist.load(bundle[0], threads=1)
    library.open_target.cache_clear()


def compute_front(module, rows):
    """Means [n, d] and logits [n, S] by the module in float64, classes by ascending id."""
    double = make_module(module.classes, module.dim, module.components, module.tree).double()
    double.load_state_dict({name: values.double() for name, values in module.state_dict().items()})
    rows, order = torch.from_numpy(rows).double(), module.order[: module.frequent].argsort()
    with torch.inference_mode():
        means = double.compute_mean(double.compute_components(rows), double.compute_gates(rows)[1])
        return means.numpy(), double.compute_parts(rows)[0][:, order].numpy()


@pytest.mark.parametrize("scale", [1, 30])
def test_loops_give_what_the_module_does(head, bundle, scale):
    module = bundle[1]
    rows = scale * make_contexts(50, module.dim, seed=7).contexts
    means, logits = head.plan.front(rows)
    for values, expected, other in zip(
        (means, logits), compute_front(module, rows), head.plan.front.graph(context=rows), strict=True
    ):
        np.testing.assert_allclose(values, expected, atol=1e-5 * np.abs(expected).max())
        np.testing.assert_allclose(values, other, atol=2e-5 * np.abs(expected).max())
    for row in range(0, 50, 10):
        alone = head.plan.front(rows[row : row + 1])
        np.testing.assert_array_equal(alone[0][0], means[row])
        np.testing.assert_array_equal(alone[1][0], logits[row])


def test_answers_of_one_row_are_those_of_the_long_way(head, bundle, monkeypatch):
    rows = make_contexts(40, bundle[1].dim, seed=8).contexts
    for k in (1, K, head.row_answers.max_k):
        tops = [head.topk(row[None].copy(), k) for row in rows]
        assert all(head.row_answers(row[None].copy(), k) is not None for row in rows)
        with monkeypatch.context() as patched:
            patched.setattr(head, "row_answers", None)
            wanted = [head.topk(row[None], k) for row in rows]
        for top, other in zip(tops, wanted, strict=True):
            for name in ("ids", "logprobs", "scored"):
                np.testing.assert_array_equal(getattr(top, name), getattr(other, name))
            assert top.normalizer == other.normalizer


def test_rows_that_are_not_finite_are_refused(head, bundle):
    rows = make_contexts(1, bundle[1].dim).contexts.copy()
    rows[0, 0] = np.inf
    assert head.row_answers(rows, K) is None
    with pytest.raises(BadInput, match="finite"):
        head.topk(rows, K)


def test_several_threads_give_the_same(bundle):
    rows = make_contexts(300, bundle[1].dim, seed=9).contexts
    one, several = (shortlist.load(bundle[0], threads=threads) for threads in (1, 3))
    for _ in range(3):  # threads share rows once it is known how long they take
        for values, other in zip(one.plan.front(rows), several.plan.front(rows), strict=True):
            np.testing.assert_array_equal(values, other)
