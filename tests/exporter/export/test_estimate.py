"""What an export is said to need before it begins."""

import numpy as np
import pytest
from shortlist_exporter.export.estimate import Estimate, estimate_export
from shortlist_exporter.export.request import Request

from tests.support.layers import make_contexts, make_dense


@pytest.mark.parametrize("method", ["full", "svd", "cascade", "grouped"])
def test_more_classes_need_more(method):
    contexts, request = make_contexts(dim=32), Request(method=method)
    small, large = (estimate_export(make_dense(classes, 32), contexts, request) for classes in (5_000, 200_000))
    weights = 4 * 32 * 195_000
    assert 2 * weights < large.memory_bytes - small.memory_bytes < 3 * weights
    assert small.seconds < large.seconds


def test_trained_methods_take_as_long_as_their_training():
    estimate = estimate_export(make_dense(), make_contexts(), Request(method="ds"))
    assert estimate.seconds is None
    assert "as long as training takes" in str(estimate)


def test_the_sentence_has_sizes_and_minutes():
    assert str(Estimate(3 << 30, 600.0)) == "this will need about 3.0 GiB of memory and about 10 minutes (estimates)"
    assert str(Estimate(1 << 30, 5.0)) == "this will need about 1.0 GiB of memory and about a minute (estimates)"


def test_bundles_without_dense_need_a_copy_less():
    dense, contexts = make_dense(50_000, 32), make_contexts(dim=32)
    whole, less = (estimate_export(dense, contexts, Request(keep_dense=keep)) for keep in (True, False))
    assert whole.memory_bytes - less.memory_bytes == dense.weight.nbytes == np.float32().nbytes * 50_000 * 32
