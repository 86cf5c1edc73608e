"""Names of classes of which some were added since the bundle was exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shortlist.bundle.names import Names
from shortlist.core.results import NO_CLASS, IdArray


class GrowingNames(Names):
    """The names of a bundle's V classes, and of those added after them: V, V + 1, ...

    Threads may read it while one adds to it. added: names in the order of their ids. ids: the id of each. follow: adds
    what other processes have added.
    """

    added: list[str]
    ids: dict[str, int]
    follow: Callable[[], None]

    @classmethod
    def grow(cls, names: Names) -> GrowingNames:
        """The names of a bundle, to which none were added yet."""
        growing = cls(*names)
        growing.added, growing.ids, growing.follow = [], {}, follow_nobody
        return growing

    @property
    def first_id(self) -> int:
        """V, the id of the first name that is added."""
        return self.offsets.size - 1

    def read_text(self, number: int) -> str | None:
        """The name of a class; None for -1, and for an id that no class has."""
        place = number - self.first_id
        if place < 0:
            return super().read_text(number)
        return self.added[place] if place < len(self.added) else None

    def find(self, names: Sequence[str]) -> IdArray:
        """The classes [m] that have these names; -1 for a name that no class has."""
        self.follow()
        return self.find_known(names)

    def find_known(self, names: Sequence[str]) -> IdArray:
        """As `find`, of names that this process knows."""
        ids = super().find(names)
        if self.ids and (ids == NO_CLASS).any():
            ids = ids.copy()
            for place in np.flatnonzero(ids == NO_CLASS).tolist():
                ids[place] = self.ids.get(names[place], NO_CLASS)
        return ids

    def add(self, names: list[str]) -> list[int]:
        """The ids of `names`, of which those that no class has get the next ones."""
        ids: list[int] = self.find_known(names).tolist()
        for place, name in enumerate(names):
            if ids[place] == NO_CLASS:
                self.added.append(name)
                ids[place] = self.ids[name] = self.first_id + len(self.added) - 1
        return ids


def follow_nobody() -> None:
    """Do nothing: the default where no other process adds names."""
