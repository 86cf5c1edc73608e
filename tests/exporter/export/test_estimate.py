"""What an export is said to need before it begins."""

import numpy as np
import pytest
from shortlist_exporter.export.estimate import Estimate, estimate_export
from shortlist_exporter.export.request import Request
from shortlist_exporter.inputs.sources import Dense

from tests.support.layers import make_contexts, make_dense


def make_zeros(classes, dim=32):
    """A layer of which no memory is used until it is read."""
    return Dense(np.zeros((classes, dim), np.float32))


@pytest.mark.parametrize("method", ["full", "svd", "cascade", "grouped"])
def test_more_classes_need_more(method):
    contexts, request = make_contexts(dim=32), Request(method=method)
    small, large = (estimate_export(make_zeros(classes), contexts, request) for classes in (600_000, 12_000_000))
    weights = 4 * 32 * 11_400_000
    assert 2 * weights < large.memory_bytes - small.memory_bytes < 3 * weights
    assert small.seconds < large.seconds


@pytest.mark.parametrize(
    ("classes", "dim", "rows", "mebibytes"),
    [
        (3_000, 64, 4_000, 460),
        (20_000, 128, 8_000, 544),
        (20_000, 512, 3_000, 969),
        (100_000, 128, 8_000, 1033),
        (200_000, 32, 4_000, 1037),
    ],
)
def test_the_memory_that_exports_took_is_what_is_stated(classes, dim, rows, mebibytes):
    """Measured once each, of the whole command with its report, on two cores."""
    estimate = estimate_export(make_zeros(classes, dim), make_contexts(rows, dim), Request(method="grouped"))
    assert estimate.memory_bytes / (1 << 20) == pytest.approx(mebibytes, rel=0.15)


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
