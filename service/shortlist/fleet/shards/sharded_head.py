"""A head in shards, all of them in this process: what it answers is what several machines would."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy.typing as npt

from shortlist.bundle.class_sets import SETS_FOLDER, ClassSets, SetNames
from shortlist.bundle.names import Names, require_names
from shortlist.core.bias import Bias, BiasLike, parse_bias
from shortlist.core.filters import ClassFilter, IdLists
from shortlist.core.results import FloatArray, PlanResult, TopK, find_weakest_normalizer
from shortlist.head import Head
from shortlist.head_arguments import HeadArguments
from shortlist.plans.common.normalizer import make_topk

from .gathered_head import gather_names
from .merge import merge_results
from .ranges import ClassRange
from .shard import open_shard_bundle
from .shard_list import ShardList, read_shard_list


class ShardedHead(HeadArguments):
    """Heads of class ranges as one. Threads may share it."""

    def __init__(
        self, shard_list: ShardList, heads: list[Head], sets: ClassSets | None = None, names: Names | None = None
    ) -> None:
        """heads: of the shards, in their order. sets, names: of classes of the whole layer."""
        self.manifest, self.heads, self.sets, self.names = shard_list, heads, sets, names
        self.ranges = [ClassRange(shard.start, shard.stop) for shard in shard_list.shards]

    @classmethod
    def open(cls, path: str | Path, *, device: str | None = None, threads: int | None = None) -> Self:
        """Open what `shortlist shard` wrote; raises NotFound, BundleError, DeviceError."""
        folder = Path(path)
        shard_list = read_shard_list(folder)
        bundles = [open_shard_bundle(folder, shard) for shard in shard_list.shards]
        sets = ClassSets([folder / SETS_FOLDER], shard_list.classes, shard_list.name)
        return cls(shard_list, [Head(bundle, device, threads) for bundle in bundles], sets, gather_names(bundles))

    def topk(
        self,
        contexts: npt.ArrayLike,
        k: int,
        *,
        allow: IdLists = None,
        ban: IdLists = None,
        within: SetNames = None,
        without: SetNames = None,
        bias: BiasLike = None,
        exact: bool = False,
        names: bool = False,
    ) -> TopK:
        """The k best classes of each context vector [B, d], as `Head.topk`; raises BadInput, NotFound.

        `scored` adds up what all shards scored. The normaliser is the weakest of the shards'.
        """
        name_table = require_names(self.names, self.manifest.name) if names else None
        rows, k = self.check_contexts(contexts), self.check_k(k)
        class_filter = self.check_filter(allow, ban, len(rows), within, without)
        weights = parse_bias(bias, len(rows), self.manifest.classes)
        top = self.search(rows, k, class_filter, weights, exact)
        top.names = None if name_table is None else name_table.read(top.ids)
        return top

    def search(self, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None, exact: bool) -> TopK:
        """What all shards find, as one answer."""
        results: list[PlanResult] = []
        normalizers = []
        for head, part in zip(self.heads, self.ranges, strict=True):
            part_k = min(k, head.manifest.max_k)
            plan, normalizer = head.choose_plan(len(contexts), part_k, exact, proof=bias is None)
            part_filter, part_bias = part.localize_filter(class_filter), part.localize_bias(bias)
            results.append(part.globalize(head.run(plan, contexts, part_k, part_filter, part_bias)))
            normalizers.append(normalizer)
        return make_topk(merge_results(results, k), find_weakest_normalizer(normalizers))
