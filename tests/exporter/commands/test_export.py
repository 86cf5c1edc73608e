"""`shortlist export`: what it says of a layer before the work."""

import numpy as np
import pytest

from tests.support.layers import call_cli


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "is_noted"), [((12, 40), True), ((40, 12), False)])
def test_a_weight_without_contexts_that_may_be_transposed_is_noted(tmp_path, shape, is_noted):
    np.save(tmp_path / "w.npy", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    inputs = ("--weights", tmp_path / "w.npy", "--method", "full", "--no-report", "--out", tmp_path / "lm" / "1")
    process = call_cli("export", *inputs)
    assert process.returncode == 0, process.stderr
    noted = "12 rows of 40 numbers, and each row is a class: give the transpose if it is a kernel [d, V]"
    assert (noted in process.stderr) == is_noted
