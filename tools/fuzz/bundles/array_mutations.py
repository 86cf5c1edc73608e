"""Mutations of one array: of its values, its order, its length, its shape, its dtype."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WHOLE_NUMBERS = (
    -(2**63), -(2**40), -(2**31), -2, -1, 0, 1, 2, 15, 16, 17, 1099, 1100, 1101, 2**15, 2**31 - 1, 2**31, 2**32 + 1,
    2**33, 2**40, 2**62, 2**63 - 1,
)  # fmt: skip
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-45, 1e-30, 1e10, 1e30, 3e38, -3e38)
DTYPES = ("int64", "int32", "int16", "int8", "uint8", "uint64", "float32", "float64", "float16", "bool")


def choose_number(array: Array, random: Random) -> Any:
    """A number for `array`: an extreme one, one near to one of its own, or one of its own."""
    kind = array.dtype.kind
    if kind == "f":
        return random.choice(FLOATS)
    if kind in "iu":
        limits = np.iinfo(array.dtype)
        near = int(random.choice(array.reshape(-1).tolist() or [0])) + random.choice((-1, 0, 1))
        number = random.choice((*WHOLE_NUMBERS, near, near, near))
        return min(max(number, int(limits.min)), int(limits.max))
    return random.random() < 0.5


def set_values(array: Array, random: Random) -> Array:
    """One to three entries."""
    for _ in range(random.randint(1, 3)):
        if array.size:
            array.reshape(-1)[random.randrange(array.size)] = choose_number(array, random)
    return array


def set_ends(array: Array, random: Random) -> Array:
    """The first or the last entry, on which offsets hang."""
    if array.size:
        array.reshape(-1)[random.choice((0, -1))] = choose_number(array, random)
    return array


def fill(array: Array, random: Random) -> Array:
    array[...] = choose_number(array, random)
    return array


def shift(array: Array, random: Random) -> Array:
    """The same number added to all."""
    if array.dtype.kind not in "if":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return (array + np.array(choose_number(array, random), array.dtype)).astype(array.dtype)


def swap(array: Array, random: Random) -> Array:
    flat = array.reshape(-1)
    if flat.size > 1:
        one, other = random.randrange(flat.size), random.randrange(flat.size)
        flat[[one, other]] = flat[[other, one]]
    return array


def copy_entry(array: Array, random: Random) -> Array:
    """One entry in the place of another."""
    flat = array.reshape(-1)
    if flat.size > 1:
        flat[random.randrange(flat.size)] = flat[random.randrange(flat.size)]
    return array


def reverse(array: Array, random: Random) -> Array:
    return array[::-1].copy()


def shuffle(array: Array, random: Random) -> Array:
    return np.random.default_rng(random.randrange(2**32)).permutation(array)


def sort(array: Array, random: Random) -> Array:
    return np.sort(array, axis=0)


def truncate(array: Array, random: Random) -> Array:
    rows = len(array) if array.ndim else 0
    return array[: random.choice((0, 1, 2, 3, rows // 2, max(0, rows - 1)))].copy() if rows else array


def extend(array: Array, random: Random) -> Array:
    if not array.ndim or not len(array):
        return array
    return np.concatenate([array, np.repeat(array[-1:], random.choice((1, 2, 17, len(array))), axis=0)])


def widen(array: Array, random: Random) -> Array:
    """Other columns of a matrix."""
    if array.ndim < 2:
        return array
    return np.concatenate([array, array[:, :1]], axis=1) if random.random() < 0.5 else array[:, :-1].copy()


def reshape(array: Array, random: Random) -> Array:
    return random.choice((array[None], array[..., None], array.reshape(-1), array.T.copy()))


def change_dtype(array: Array, random: Random) -> Array:
    """The same values, or the same bytes, as another dtype."""
    dtype = np.dtype(random.choice(DTYPES))
    if random.random() < 0.3 and array.nbytes % dtype.itemsize == 0:
        return np.frombuffer(array.tobytes(), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype)


MUTATIONS: tuple[Callable[[Array, Random], Array], ...] = (
    set_values, set_values, set_values, set_values, set_ends, fill, shift, swap, copy_entry, reverse, shuffle, sort,
    truncate, extend, widen, reshape, change_dtype,
)  # fmt: skip


def mutate_array(array: Array, random: Random) -> tuple[Array, str]:
    """Another array, and what was done to it."""
    mutation = random.choice(MUTATIONS if array.ndim else (set_values, change_dtype))
    return mutation(array.copy(), random), mutation.__name__
