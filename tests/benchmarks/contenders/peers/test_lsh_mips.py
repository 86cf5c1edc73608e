"""LSH-MIPS looks where codes agree, and nearby codes first."""

from itertools import product

import numpy as np

from benchmarks.contenders.basis import load_basis
from benchmarks.contenders.peers import lsh_mips
from tests.support.contenders import make_fading_layer


def test_lsh_looks_where_a_code_agrees():
    dense, contexts = make_fading_layer()
    contender = lsh_mips.LshMips({"basis": "raw", "tables": 3, "bits": 5}, 1)
    contender.fit(dense, contexts[:1000])
    directions = np.random.default_rng(lsh_mips.LSH_SEED).standard_normal((18, 15), np.float32)
    points = lsh_mips.lift_to_sphere(load_basis("raw", dense, contexts).rows)
    for context in contexts[1000:1020]:
        query = np.concatenate([context, [1, 0]]).astype(np.float32)
        agree = ((points @ directions >= 0) == (query @ directions >= 0)).reshape(-1, 3, 5)
        contender.use({"probes": 1})
        projections = contender.split_by_table(contender.basis.queries(context[None]) @ contender.directions)[0]
        assert list(contender.find_candidates(projections)) == list(agree.all(axis=2).any(axis=1).nonzero()[0])


def test_lsh_probes_the_least_different_codes_first():
    projections = np.array([[0.5, -0.1, 2.0], [-1.0, 0.3, -0.2]], np.float32)
    expected = [
        [
            sum(abs(along) for along, bit in zip(row, bits, strict=True) if bit != (along >= 0))
            for bits in product((0, 1), repeat=3)
        ]
        for row in projections
    ]
    assert np.allclose(lsh_mips.code_distances(projections), expected)
    assert list(lsh_mips.compute_codes(projections)) == list(np.argmin(expected, axis=1))
