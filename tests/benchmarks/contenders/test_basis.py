"""Lifted rows turn the largest inner products into the nearest neighbours."""

import numpy as np

from benchmarks.contenders.basis import lift_rows
from benchmarks.contenders.peers import lsh_mips


def test_after_the_lift_the_nearest_are_those_of_the_largest_inner_product():
    random = np.random.default_rng(0)
    rows, query = random.standard_normal((200, 6)).astype(np.float32), random.standard_normal(6).astype(np.float32)
    for lift in (lift_rows, lsh_mips.lift_to_sphere):
        lifted = lift(rows)
        assert np.allclose(np.linalg.norm(lifted, axis=1), np.linalg.norm(lifted[0]), rtol=1e-5)
        distances = np.square(lifted - np.append(query, 0)).sum(axis=1)
        assert list(np.argsort(distances)[:20]) == list(np.argsort(-rows @ query)[:20])
