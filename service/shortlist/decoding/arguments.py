"""The arguments of a beam step, checked as far as that needs no head."""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from typing import Any

import numpy as np

from shortlist.core.arrays import NUMBER_KINDS, to_float_array, to_id_array, to_numpy
from shortlist.core.bias import BiasLike, parse_bias
from shortlist.core.checks import parse_whole_number, show
from shortlist.core.draws.sampling import TEMPERATURE_HINT, are_temperatures
from shortlist.core.filters import check_list_rows, refuse_named_lists
from shortlist.core.queries import BeamQuery
from shortlist.core.results import NO_CLASS, BoolArray, DoubleArray, IdArray
from shortlist.core.row_lists import Lists, RowLists
from shortlist.errors import BadInput

MAX_COUNT = 1 << 31  # of beams, continuations and tokens: more than any request has


def count_continuations(beam: int, end_ids: int) -> int:
    """How many continuations a group needs so that `beam` of them go on, whichever end: n by default."""
    return max(2, 1 + end_ids) * beam


def make_beam_query(
    contexts: Any,
    scores: Any,
    finished: Any = None,
    *,
    beam: int,
    n: int | None = None,
    eos: Any = (),
    allow: Any = None,
    ban: Any = None,
    bias: BiasLike = None,
    forced: Any = None,
    min_length: int = 0,
    lengths: Any = None,
    temperature: Any = 1.0,
    exact: bool = False,
) -> BeamQuery:
    """The query of `beam_step`'s arguments; raises BadInput."""
    rows, width = to_float_array("contexts", contexts), parse_count("beam", beam)
    if len(rows) % width:
        raise BadInput(
            f"contexts have {len(rows)} rows, no whole number of groups of {width}: give every group {width}"
        )
    ends = parse_ids("eos", eos)
    least = min(parse_whole_number("min_length", min_length), MAX_COUNT)
    return BeamQuery(
        rows,
        parse_scores(scores, len(rows)),
        parse_flags("finished", finished, len(rows)),
        width,
        count_continuations(width, ends.size) if n is None else parse_count("n", n),
        ends,
        parse_temperature(temperature, len(rows)),
        parse_lists("allow", allow, len(rows)),
        parse_lists("ban", ban, len(rows)),
        parse_bias(bias, len(rows)),
        None if forced is None else check_length("forced", parse_ids("forced", forced), len(rows)),
        least,
        parse_lengths(lengths, len(rows), least),
        bool(exact),
    )


STEP_OPTIONS = tuple(
    name for name, each in signature(make_beam_query).parameters.items() if each.kind is each.KEYWORD_ONLY
)


def check_step_options(options: Collection[str]) -> None:
    """Raise BadInput at an option that `beam_step` does not have, and where it is not told the beam."""
    unknown = next((name for name in options if name not in STEP_OPTIONS), None)
    if unknown is not None:
        raise BadInput(f"beam_step has no option '{unknown}': known are {', '.join(STEP_OPTIONS)}")
    if "beam" not in options:
        raise BadInput("beam is missing: give the number of rows in each group, as beam=5")


def parse_count(what: str, value: Any) -> int:
    """A whole number from 1 to `MAX_COUNT`; raises BadInput."""
    count = parse_whole_number(what, value)
    if count < 1:
        raise BadInput(f"{what} is {count}: give 1 or more")
    if count > MAX_COUNT:
        raise BadInput(f"{what} is over {MAX_COUNT}: give fewer")
    return count


def parse_ids(what: str, values: Any) -> IdArray:
    """A flat list of ids, or one id, as [m] int64; raises BadInput."""
    if isinstance(values, int | np.integer) and not isinstance(values, bool):
        values = [values]
    ids = to_id_array(what, values)
    if ids.ndim != 1:
        raise BadInput(f"{what} has shape {list(ids.shape)}: give a flat list of ids")
    return ids


def parse_sequences(what: str, sequences: Any) -> list[list[int]]:
    """Lists of ids, each without the -1 that pads it in an array; raises BadInput."""
    if not hasattr(sequences, "__iter__"):
        raise BadInput(f"{what} is {show(sequences)}: give a list of lists of ids")
    return [parse_sequence(what, each) for each in sequences]


def parse_sequence(what: str, sequence: Any) -> list[int]:
    """One of these lists; raises BadInput."""
    if isinstance(sequence, str) or not hasattr(sequence, "__len__"):
        raise BadInput(f"{what} holds {show(sequence)} in place of a list of ids: give a list of such lists")
    ids = parse_ids(what, sequence)
    if (ids < NO_CLASS).any():
        raise BadInput(f"{what} holds id {ids.min()}: give ids from 0; -1 pads")
    tokens: list[int] = ids[ids != NO_CLASS].tolist()
    return tokens


def parse_number(what: str, value: Any) -> float:
    """One number, also of numpy or torch, as a float; raises BadInput."""
    try:
        number = to_numpy(value)
    except (TypeError, ValueError):
        number = np.empty(0)
    if number.ndim or number.dtype.kind not in NUMBER_KINDS:
        raise BadInput(f"{what} is {show(value)}: give one number")
    return float(number)


def parse_doubles(what: str, values: Any) -> DoubleArray:
    """A flat list of numbers as [m] float64; raises BadInput."""
    try:
        numbers = to_numpy(values)
        if numbers.size and numbers.dtype.kind not in NUMBER_KINDS:
            raise TypeError
    except (TypeError, ValueError):
        raise BadInput(f"{what} must be a flat list of numbers") from None
    if numbers.ndim != 1:
        raise BadInput(f"{what} has shape {list(numbers.shape)}: give one number a row")
    return numbers.astype(np.float64, copy=False)


def check_length(what: str, values: Any, rows: int) -> Any:
    """`values` themselves; raises BadInput unless there is one for each of `rows`."""
    if len(values) != rows:
        raise BadInput(f"{what} has {len(values)} entries for {rows} contexts: give one a row")
    return values


def parse_scores(values: Any, rows: int) -> DoubleArray:
    """The beams' scores [rows]; raises BadInput at one that is NaN or +inf."""
    scores: DoubleArray = check_length("scores", parse_doubles("scores", values), rows)
    wrong = np.flatnonzero(~(scores < np.inf))
    if wrong.size:
        raise BadInput(f"scores row {wrong[0]} is {scores[wrong[0]]}: give log-probabilities, -inf for no beam")
    return scores


def parse_flags(what: str, values: Any, rows: int) -> BoolArray:
    """One flag a row, by default all false; raises BadInput."""
    if values is None:
        return np.zeros(rows, bool)
    try:
        flags = to_numpy(values)
    except (TypeError, ValueError):
        flags = np.empty(0, np.object_)
    if flags.ndim != 1 or (flags.size and flags.dtype != np.bool_):
        raise BadInput(f"{what} must be a flat list of true and false")
    checked: BoolArray = check_length(what, flags.astype(bool), rows)
    return checked


def parse_temperature(values: Any, rows: int) -> DoubleArray:
    """[1 or rows] numbers in the range that draws have, too; raises BadInput."""
    single = isinstance(values, str) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
    numbers = np.array([parse_number("temperature", values)]) if single else parse_doubles("temperature", values)
    if not single:
        check_length("temperature", numbers, rows)
    wrong = numbers[~are_temperatures(numbers)]
    if wrong.size:
        raise BadInput(f"temperature is {wrong[0]}: {TEMPERATURE_HINT}")
    return numbers


def parse_lists(name: str, values: Any, rows: int) -> Lists | None:
    """One list for all rows, one a row, or a table of lists; raises BadInput."""
    if values is None:
        return None
    refuse_named_lists(name, values)
    lists = values if isinstance(values, RowLists) else np.atleast_2d(to_id_array(name, values))
    check_list_rows(name, lists, rows)
    return lists


def parse_lengths(values: Any, rows: int, min_length: int) -> IdArray | None:
    """[1 or rows] tokens that each row has; raises BadInput where a minimum length needs them and there are none."""
    if values is None:
        if min_length > 0:
            raise BadInput(f"min_length is {min_length} but lengths are missing: say how many tokens each row has")
        return None
    lengths = parse_ids("lengths", values)
    if not isinstance(values, int | np.integer):
        check_length("lengths", lengths, rows)
    return lengths
