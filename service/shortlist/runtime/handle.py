"""Objects that hold files, memory and threads of one process."""

from __future__ import annotations

from typing import NoReturn, Self, SupportsIndex

from shortlist.errors import BadInput


class Handle:
    """Is copied within its process, and neither pickled nor copied deeply."""

    def __copy__(self) -> Self:
        """Another one with the same attributes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Called to pickle it or to copy it deeply; raises BadInput."""
        raise BadInput(f"{self!r} cannot be pickled or copied deeply: open another one in each process")
