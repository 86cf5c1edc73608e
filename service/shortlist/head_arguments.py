"""Arguments of a head's methods: checked, and as arrays."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy.typing as npt

from shortlist.bundle.class_sets import ClassSets, SetNames
from shortlist.bundle.names import Names, resolve_names
from shortlist.core.arrays import parse_contexts
from shortlist.core.checks import parse_whole_number
from shortlist.core.filters import (
    UNRESTRICTED,
    ClassFilter,
    IdLists,
    Members,
    parse_filter,
    parse_id_lists,
    restrict_to_members,
)
from shortlist.core.results import FloatArray, IdArray, Labels, make_label_array
from shortlist.errors import BadInput
from shortlist.runtime.handle import Handle


class HeadFacts(Protocol):
    """What arguments are checked by. classes: V. dim: d. max_k: the largest k."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def max_k(self) -> int: ...


class HeadArguments(Handle):
    """What checks the arguments of a head by its manifest.

    labels: to be printed, [V], or None. names: of classes, None where ids alone are understood. sets: of classes, by
    name; None where there are none.
    """

    manifest: HeadFacts
    labels: list[str] | None = None
    names: Names | None = None
    sets: ClassSets | None = None

    def __repr__(self) -> str:
        """As in `<Head lm: 49,152 classes x 576>`."""
        facts = self.manifest
        return f"<{type(self).__name__} {facts.name}: {facts.classes:,} classes x {facts.dim}>"

    @cached_property
    def label_array(self) -> Labels | None:
        """[V + 1] printable names by id, the last one, None, for the id -1; None where there are no labels."""
        return None if self.labels is None else make_label_array(self.labels)

    @property
    def classes(self) -> int:
        """How many ids there are: V, where no items were added since the export."""
        return self.manifest.classes

    @property
    def is_changed(self) -> bool:
        """Whether items were changed since the export: answers are not of the bundle's classes alone then."""
        return False

    def check_lists(self, allow: IdLists, ban: IdLists, rows: int) -> ClassFilter:
        """The lists as arrays, of ids where they hold names; raises BadInput."""
        if allow is None and ban is None:
            return UNRESTRICTED
        return parse_filter(*self.resolve_lists(allow, ban), rows, self.classes)

    def resolve_lists(self, allow: IdLists, ban: IdLists) -> tuple[IdLists, IdLists]:
        """The lists of ids, where they hold names; a name that no class has is left out of `ban`. Raises BadInput."""
        allow = resolve_names("allow", allow, self.names, self.manifest.name)
        return allow, resolve_names("ban", ban, self.names, self.manifest.name, unknown=True)

    def check_filter(
        self, allow: IdLists, ban: IdLists, rows: int, within: SetNames = None, without: SetNames = None
    ) -> ClassFilter:
        """The lists as of `check_lists`, of classes within and without named sets; raises BadInput, NotFound."""
        return self.restrict_lists(allow, ban, rows, self.find_members(within, without))

    def restrict_lists(self, allow: IdLists, ban: IdLists, rows: int, members: Members | None) -> ClassFilter:
        """The lists as of `check_lists`, of the classes `members` alone; of all classes where that is None."""
        lists = self.check_lists(allow, ban, rows)
        return lists if members is None else restrict_to_members(lists, members)

    def find_members(self, within: SetNames, without: SetNames) -> Members | None:
        """The classes within and without named sets, None where none is named; raises BadInput, NotFound."""
        if within is None and without is None:
            return None
        if self.sets is None:
            raise BadInput(f"{self.manifest.name} has no sets of classes here: leave within and without out")
        members = self.sets.find(within, without)
        return members and members.extend(self.classes, permitted=within is None or within == [])

    def check_contexts(self, contexts: npt.ArrayLike) -> FloatArray:
        """`contexts` as [B, d] float32; raises BadInput."""
        return parse_contexts(contexts, self.manifest.name, self.manifest.dim)

    def check_k(self, k: int, name: str = "k") -> int:
        """`k` as an int; raises BadInput, which names the argument, unless it is a whole number from 1 to max_k."""
        count = parse_whole_number(name, k)
        if not 1 <= count <= self.manifest.max_k:
            raise BadInput(f"{name} is {count} but {self.manifest.name} answers k from 1 to {self.manifest.max_k}")
        return count

    def check_ids(self, ids: npt.ArrayLike | None, rows: int) -> IdArray:
        """`ids` or names, [m] for all rows or a list for each row, as [rows, m] int64; raises BadInput."""
        ids = resolve_names("ids", ids, self.names, self.manifest.name, in_place=True)
        class_ids = parse_id_lists("ids", ids, rows, self.classes)
        return class_ids if len(class_ids) == rows else class_ids.repeat(rows, axis=0)
