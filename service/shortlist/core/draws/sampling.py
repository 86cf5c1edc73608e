"""What is drawn: seeds, positions, temperatures of B rows, and how many draws; checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.core.checks import parse_whole_number, show
from shortlist.core.results import BoolArray, DoubleArray
from shortlist.errors import BadInput

from .noise import Words, make_key, make_keys

MAX_DRAWS = 1 << 20  # of one row
MAX_SEED = 2**63 - 1  # of seeds and positions alike
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0
TEMPERATURE_HINT = f"give numbers from {MIN_TEMPERATURE} to {MAX_TEMPERATURE:g}"

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """How classes of B rows are drawn.

    seeds, positions: [B] int64, 0 or more. temperatures: [B] float64. draws: of each row, by noise of their own. top_k:
    from the k best classes alone; None for all. top_p: from the fewest best classes that together have this
    probability at that temperature, among the k best where there is a k; 1 for all.
    """

    seeds: Integers
    positions: Integers
    temperatures: DoubleArray
    draws: int = 1
    top_k: int | None = None
    top_p: float = 1.0

    def __len__(self) -> int:
        """How many rows it is for."""
        return len(self.seeds)

    def slice_rows(self, start: int, stop: int) -> Self:
        """What is drawn of the rows start to stop - 1."""
        part = slice(start, stop)
        parts = self.seeds[part], self.positions[part], self.temperatures[part]
        return type(self)(*parts, self.draws, self.top_k, self.top_p)

    def make_keys(self) -> Words:
        """Keys of the noise, [B, draws, 2] uint32."""
        if len(self) == 1 and self.draws == 1:
            return np.array([[make_key(int(self.seeds[0]), int(self.positions[0]))]], np.uint32)
        return make_keys(self.seeds, self.positions, self.draws)


def parse_sampling(
    rows: int,
    seed: Any,
    position: Any = 0,
    temperature: Any = 1.0,
    draws: Any = 1,
    top_k: Any = None,
    top_p: Any = None,
    k_name: str = "top_k",
) -> Sampling:
    """Check the arguments of `Head.sample`: seed, position and temperature one for all `rows`, or one a row.

    k_name: what the caller calls `top_k`. Raises BadInput.
    """
    seeds, positions = (parse_integers(*each, rows) for each in (("seed", seed), ("position", position)))
    count = parse_whole_number("draws", draws)
    if not 1 <= count <= MAX_DRAWS:
        raise BadInput(f"draws is {show(draws)}: give a whole number from 1 to {MAX_DRAWS}")
    share = 1.0 if top_p is None else parse_number("top_p", top_p)
    if not 0 < share <= 1:
        raise BadInput(f"top_p is {show(top_p)}: give a probability over 0, up to 1")
    k = None if top_k is None else parse_whole_number(k_name, top_k)
    return Sampling(seeds, positions, parse_temperatures(temperature, rows), count, k, share)


def parse_integers(name: str, value: Any, rows: int) -> Integers:
    """[rows] int64 of one number or one a row; raises BadInput."""
    if type(value) is int and 0 <= value <= MAX_SEED:
        return np.array([value] * rows, np.int64)
    numbers = to_array(value)
    if numbers.ndim > 1 or numbers.dtype.kind not in "iu" or (numbers.size and not numbers.min() >= 0):
        raise BadInput(f"{name} is {show(value)}: give a whole number from 0, or a list of one a row")
    if numbers.size and numbers.max() > MAX_SEED:
        raise BadInput(f"{name} is {show(value)}: give at most {MAX_SEED}")
    return repeat_rows(name, numbers.astype(np.int64), rows)


def parse_temperatures(value: Any, rows: int) -> DoubleArray:
    """[rows] float64 of one number or one a row; raises BadInput."""
    if type(value) is float and MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        return np.array([value] * rows, np.float64)
    numbers = to_array(value)
    are_numbers = numbers.dtype.kind in "iuf" and numbers.ndim < 2
    if not (are_numbers and are_temperatures(numbers).all()):
        raise BadInput(f"temperature is {show(value)}: {TEMPERATURE_HINT}; for the best class itself ask for k = 1")
    return repeat_rows("temperature", numbers.astype(np.float64), rows)


def are_temperatures(numbers: npt.NDArray[Any]) -> BoolArray:
    """Which numbers are a temperature that draws and beams may have; the least one may have been float32."""
    inside: BoolArray = (numbers >= np.float32(MIN_TEMPERATURE)) & (numbers <= MAX_TEMPERATURE)
    return inside


def parse_number(name: str, value: Any) -> float:
    """`value` as float; raises BadInput unless it is a number."""
    number = to_array(value)
    if number.ndim or number.dtype.kind not in "iuf":
        raise BadInput(f"{name} is {show(value)}: give a number")
    return float(number)


def to_array(value: Any) -> npt.NDArray[Any]:
    """`value` as an array, of objects where it is ragged: of no dtype that numbers have."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return np.empty(0, np.object_)


def repeat_rows(name: str, numbers: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """One number a row; raises BadInput where there are others than one or `rows`."""
    flat = np.atleast_1d(numbers)
    if flat.size not in (1, rows):
        raise BadInput(f"{name} has {flat.size} numbers but contexts {rows} rows: give one, or one a row")
    return np.full(rows, flat)
