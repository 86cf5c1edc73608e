"""By how much float32 logits may be off."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.core.rounding import Rounding, measure_size


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_no_product_is_off_by_more(size):
    random = np.random.default_rng(0)
    weight = (random.standard_normal((300, 64)) * np.geomspace(1e-3, 1e3, 300)[:, None]).astype(np.float32)
    rounding = Rounding.of_layer(np.linalg.norm(weight, axis=1), 0.0, 64, None)
    for context in (random.standard_normal((20, 64)) * size).astype(np.float32):
        off = np.abs((weight * context).sum(axis=1, dtype=np.float32) - weight.astype(np.float64) @ context)
        assert (off <= rounding.measure_slack(context, np.arange(300))).all()


def test_a_context_beyond_float32_has_no_size():
    with np.errstate(over="ignore"):
        assert measure_size(np.full(4, 3e38, np.float32)) == np.inf
    assert measure_size(np.zeros(4, np.float32)) == 1
