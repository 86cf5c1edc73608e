"""Noise of classes: its bits, its distribution, and that nothing but its key matters."""

from __future__ import annotations

import math

import numpy as np
from shortlist.core.draws.noise import make_key, make_keys, make_noise, mix

CLASSES = np.arange(2**18)
KNOWN = [1.5681756652272159, -1.12757041593451, -0.07269548091145857]  # of seed 1, position 17
MASK = 2**64 - 1


def split_mix(state, number):
    key = ((state ^ number) + 0x9E3779B97F4A7C15) & MASK
    key = ((key ^ key >> 30) * 0xBF58476D1CE4E5B9) & MASK
    key = ((key ^ key >> 27) * 0x94D049BB133111EB) & MASK
    return key ^ key >> 31


def mix_number(x):
    x = ((x ^ x >> 16) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ x >> 15) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ x >> 16


def noise_of(seed, position, draw, class_id):
    """What the module's docstring says, in Python's whole numbers."""
    key = split_mix(split_mix(split_mix(0, seed), position), draw)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    high = mix_number(mix_number(class_id ^ k0) ^ k1)
    low = mix_number(high ^ k0) >> 12
    return -math.log(-math.log1p(-((high << 20) + low + 0.5) / 2**52))


def test_noise_is_what_the_formula_says():
    keys = make_keys([3, 2**63 - 1], [17, 0], 3)
    for row, (seed, position) in enumerate(((3, 17), (2**63 - 1, 0))):
        for draw in range(3):
            noise = make_noise(keys[row, draw], np.array([0, 5, 262_143]))
            wanted = [noise_of(seed, position, draw, each) for each in (0, 5, 262_143)]
            np.testing.assert_allclose(noise, wanted, rtol=1e-14)


def test_one_key_is_that_of_many():
    for seed, position, draw in ((1, 17, 0), (2**63 - 1, 5, 2)):
        assert make_key(seed, position, draw) == tuple(make_keys(seed, position, 3)[0, draw].tolist())


def test_known_noise():
    """Bits that must never change: a seed is kept with the text that it made."""
    noise = make_noise(make_keys(1, 17, 1)[0, 0], np.arange(3))
    np.testing.assert_allclose(noise, KNOWN, rtol=1e-12)


def test_noise_has_the_distribution_of_gumbel():
    noise = np.concatenate([make_noise(key, CLASSES) for key in make_keys(np.arange(5), 0, 1)[:, 0]])
    wanted = noise.size / 1000
    counts, _ = np.histogram(np.exp(-np.exp(-noise)), bins=1000, range=(0, 1))
    chi = ((counts - wanted) ** 2 / wanted).sum()
    assert abs(chi - 999) < 5 * math.sqrt(2 * 999)


def test_noise_of_neighbours_is_independent():
    """Neighbours in class, draw, position and seed."""
    keys = [make_keys(seed, position, 2)[0] for seed in (0, 1) for position in (0, 1)]
    columns = [make_noise(key, CLASSES) for pair in keys for key in pair]
    most = 7 / math.sqrt(CLASSES.size)
    uniform = np.exp(-np.exp(-np.array(columns)))
    assert np.abs(np.corrcoef(uniform) - np.eye(len(columns))).max() < most
    for neighbours in (CLASSES ^ 1, CLASSES ^ 256, np.roll(CLASSES, 1)):
        assert abs(np.corrcoef(uniform[0], uniform[0][neighbours])[0, 1]) < most


def test_mix_is_a_permutation():
    assert len(np.unique(mix(np.arange(2**20, dtype=np.uint32)))) == 2**20
