"""Lists and biases of a request as tensors and parameters of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.bundle.names import has_names, pad_names
from shortlist.core.arrays import Array, to_id_array
from shortlist.core.bias import Bias, BiasLike, parse_bias
from shortlist.core.filters import check_list_rows
from shortlist.core.row_lists import Lists, NamedLists, RowLists, take_rows
from shortlist.errors import BadInput
from shortlist.wire.open_inference import BIAS, BIAS_IDS, LIST, OFFSETS, ROWS

Tensors = tuple[dict[str, Array], dict[str, Any]]  # inputs and parameters, by name


@dataclass(frozen=True, slots=True)
class Restrictions:
    """The lists by name, `allow` and `ban`, and the bias of B rows; checked as far as the client can."""

    lists: dict[str, Lists | NamedLists]
    bias: Bias | None

    @classmethod
    def parse(cls, lists: Mapping[str, Any], bias: BiasLike, rows: int) -> Restrictions:
        """lists: None where there is no such list. Raises BadInput."""
        present = {name: values for name, values in lists.items() if values is not None}
        if not present and bias is None:
            return UNRESTRICTED
        return cls({name: parse_lists(name, values, rows) for name, values in present.items()}, parse_bias(bias, rows))

    def write(self, part: slice) -> Tensors:
        """The inputs and parameters that say this of some of the rows."""
        inputs: dict[str, Array] = {}
        parameters: dict[str, Any] = {}
        if self is UNRESTRICTED:
            return inputs, parameters
        for name, lists in self.lists.items():
            if isinstance(lists, NamedLists):
                numbers, table = write_named_lists(name, lists, part)
                inputs, parameters = inputs | numbers, parameters | table
            else:
                inputs |= write_lists(name, take_rows(lists, part))
        if self.bias is not None:
            bias = self.bias[part]
            inputs |= {BIAS_IDS: bias.ids, BIAS: bias.weights}
        return inputs, parameters


UNRESTRICTED = Restrictions({}, None)


def parse_lists(name: str, values: Any, rows: int) -> Lists | NamedLists:
    """One list for all rows, one a row, or a table of lists, registered or not; raises BadInput."""
    if isinstance(values, NamedLists):
        if values.numbers is not None and len(values.numbers) != rows:
            raise BadInput(f"{name} has {len(values.numbers)} numbers of lists for {rows} contexts: give one a row")
        return values
    if has_names(values):
        return np.atleast_2d(pad_names(name, values))
    lists: Lists = values if isinstance(values, RowLists) else np.atleast_2d(to_id_array(name, values))
    check_list_rows(name, lists, rows)
    return lists


def write_lists(name: str, lists: Lists | None) -> dict[str, Array]:
    """The inputs of lists: padded, or of a table, without the lists that no row has."""
    if not isinstance(lists, RowLists):
        return {} if lists is None else {name: lists}
    table = lists.keep_used_lists()
    return {
        name: table.ids,
        name + OFFSETS: table.offsets.astype(np.int32),
        name + ROWS: table.numbers.astype(np.int32),
    }


def write_named_lists(name: str, lists: NamedLists, part: slice) -> Tensors:
    """The parameter that names registered lists, and the input of which each row has."""
    numbers = lists[part].numbers
    inputs = {} if numbers is None else {name + ROWS: np.asarray(numbers, np.int32)}
    return inputs, {name + LIST: lists.name}


def write_sets(sets: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that name sets, without those that name none; raises BadInput."""
    lists = {parameter: list_set_names(parameter, names) for parameter, names in sets.items() if names is not None}
    return {parameter: ",".join(names) for parameter, names in lists.items() if names}


def list_set_names(what: str, names: Any) -> Sequence[str]:
    """A name of a set, or a list of names, as a list; raises BadInput."""
    several = [names] if isinstance(names, str) else names
    if not isinstance(several, list | tuple) or not all(isinstance(name, str) and "," not in name for name in several):
        raise BadInput(f"{what} must be the name of a set, or a list of names")
    return several
