"""Sums of exponentials of the classes that a call scores exactly."""

import numpy as np
from shortlist.plans.common.normalizer import cover_classes


def test_one_class_a_row_is_covered_as_several_are():
    random = np.random.default_rng(0)
    normalizers, logits = random.standard_normal((2, 50)).astype(np.float32)
    ids = random.integers(-1, 3, (50, 1))
    one = cover_classes(normalizers, ids, logits[:, None])
    padded = np.concatenate([ids, np.full((50, 1), -1)], axis=1)
    np.testing.assert_array_equal(one, cover_classes(normalizers, padded, np.column_stack([logits, logits])))
    assert one.dtype == np.float32
    assert (ids < 0).any()
    assert (one > normalizers).any()
