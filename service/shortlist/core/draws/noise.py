"""Gumbel noise of classes, a pure function of (seed, position, draw, class): the same on every machine, in any batch.

A class drawn as the argmax of logit / T + g, with g independent Gumbel(0, 1), is a draw from softmax(logit / T) (Gumbel
1954; for language models Maddison, Tarlow, Minka 2014, A* sampling). The noise of a class comes from whole numbers
alone, up to one number r in (0, 1), and g = -log(-log(1 - r)), so that small r stand for large noise:

    key  = three steps of SplitMix64, over seed, position and draw; its lower and upper half are k0 and k1
    high = mix(mix(class ^ k0) ^ k1)        low = mix(high ^ k0)        (uint32)
    r    = (2^20 high + floor(low / 2^12) + 1/2) / 2^52

mix is lowbias32 (Wellons, hash-prospector), a permutation of the uint32 with hardly any bias.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.core.results import DoubleArray, IdArray

Words = npt.NDArray[np.uint32]

# Of SplitMix64: what a step adds, and by what its two rounds multiply, modulo 2^64.
STEP, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MAX_UINT64, MAX_UINT32 = 2**64 - 1, 2**32 - 1
HALF_BITS = np.uint64(32)  # of a key
LOW_BITS_DROPPED = np.uint32(12)
HIGH_FACTOR, UNIT = 2.0**20, 2.0**-52


def make_key(seed: int, position: int, draw: int = 0) -> tuple[int, int]:
    """The key of one draw, k0 and k1, as `make_keys` gives it: for a single row in a tenth of the time."""
    key = 0
    for number in (seed, position, draw):
        key = ((key ^ number) + STEP) & MAX_UINT64
        key = ((key ^ (key >> 30)) * FIRST_FACTOR) & MAX_UINT64
        key = ((key ^ (key >> 27)) * SECOND_FACTOR) & MAX_UINT64
        key ^= key >> 31
    return key & MAX_UINT32, key >> 32


def make_keys(seeds: npt.ArrayLike, positions: npt.ArrayLike, draws: int) -> Words:
    """Keys [B, draws, 2] uint32, k0 and k1, of seeds and positions, each [B] or one number, whole and 0 or more."""
    seed, position = np.broadcast_arrays(np.atleast_1d(seeds).astype(np.uint64), np.atleast_1d(positions))
    key = step_key(step_key(np.zeros_like(seed), seed), position.astype(np.uint64))
    whole = step_key(key[:, None], np.arange(draws, dtype=np.uint64)[None])
    return np.stack([whole.astype(np.uint32), (whole >> HALF_BITS).astype(np.uint32)], axis=-1)


def step_key(state: npt.NDArray[np.uint64], number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One step of SplitMix64 from `state` xor `number`."""
    key = (state ^ number) + np.uint64(STEP)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(FIRST_FACTOR)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(SECOND_FACTOR)
    mixed: npt.NDArray[np.uint64] = key ^ (key >> np.uint64(31))
    return mixed


def mix(words: Words) -> Words:
    """A permutation of the uint32, lowbias32."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x7FEB352D)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x846CA68B)
    mixed: Words = words ^ (words >> np.uint32(16))
    return mixed


def make_noise(key: Words, classes: IdArray) -> DoubleArray:
    """Gumbel noise [n] float64 of the ids `classes` [n], for one key [2]."""
    high = mix(mix(classes.astype(np.uint32) ^ key[0]) ^ key[1])
    low = mix(high ^ key[0]) >> LOW_BITS_DROPPED
    rest = (high * HIGH_FACTOR + low + 0.5) * UNIT
    noise: DoubleArray = -np.log(-np.log1p(-rest))
    return noise
