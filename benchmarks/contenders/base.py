"""What a contender is: something that is fitted once, swept over query-time settings, and asked for the top k."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from shortlist_exporter.inputs.sources import Dense

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Options = Mapping[str, Any]  # JSON values


class Contender(ABC):
    """One way to find the k best classes. A fair peer is a tuned peer: `grid` is the least that is tried.

    name: the one in tables. builds: what `grid` gives where it does not depend on the layer. needs: modules beyond the
    extra `export`, each named as pip installs it. quick: False where building is too slow for a sweep without --full.
    own_threads: whether its library has threads beside those of numpy's products. has_filter: whether its library
    restricts a search to some classes. revision: another one where the same options make another index, so that older
    runs do not count.
    """

    name: ClassVar[str]
    builds: ClassVar[tuple[Options, ...]] = ({},)
    needs: ClassVar[tuple[str, ...]] = ()
    quick: ClassVar[bool] = True
    own_threads: ClassVar[bool] = False
    has_filter: ClassVar[bool] = False
    revision: ClassVar[str] = ""

    def __init__(self, build: Options, threads: int) -> None:
        """Keep build options (one entry of `grid`) and how many threads `fit` and `topk` may use."""
        self.build = dict(build)
        self.threads = threads
        self.setting: dict[str, Any] = {}

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Build options worth trying on this layer."""
        del dense
        return list(cls.builds)

    @abstractmethod
    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """Build the index of `dense` [V, d]; `contexts` [n, d] are a sample of what `topk` will get."""

    def settings(self) -> list[Options]:
        """Query-time options worth trying on this index, cheap ones first; none by default."""
        return [{}]

    def use(self, setting: Options) -> None:
        """Set the query-time options of `topk`; nothing is fitted again."""
        self.setting = dict(setting)

    @abstractmethod
    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """Ids [B, k] of the best classes of `contexts` [B, d], best first; -1 where it found fewer."""

    def make_filter(self, marks: BoolArray) -> Any:
        """What `topk_permitted` takes for classes that are marked [V]."""
        raise NotImplementedError(f"{self.name} has no filter")

    def topk_permitted(self, contexts: FloatArray, k: int, permitted: Any) -> IdArray:
        """As `topk`, of the classes that a filter of `make_filter` permits."""
        raise NotImplementedError(f"{self.name} has no filter")

    @abstractmethod
    def size(self) -> int:
        """Bytes of the index, the weights that it rescores with included."""

    def count_candidates(self, contexts: FloatArray, k: int) -> npt.NDArray[np.int32] | None:
        """How many classes are scored exactly for each row, [B]; V where dense does it; None where it is not known."""
        del contexts, k
        return None


def spread_settings(name: str, count: int, shares: tuple[int, ...]) -> list[Options]:
    """Settings of the option `name`: 1 / share of `count` parts for each of `shares`, at least 1, rising."""
    return [{name: parts} for parts in sorted({max(1, count // share) for share in shares})]
