"""A head in shards, all of them in this process: what it answers is what several machines would."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from shortlist.bundle.reader import Bundle
from shortlist.core.bias import BiasLike, parse_bias
from shortlist.core.filters import IdLists
from shortlist.core.results import PlanResult, TopK, find_weakest_normalizer
from shortlist.errors import BundleError, NotFound
from shortlist.head import Head
from shortlist.head_arguments import HeadArguments
from shortlist.plans.common.normalizer import make_topk

from .merge import merge_results
from .ranges import ClassRange

SHARDS_FILE = "shards.json"


class ShardEntry(BaseModel):
    """One shard: its bundle below the folder of all, by its manifest's digest, and the classes that it holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle: str
    digest: str
    start: int
    stop: int


class ShardList(BaseModel):
    """`shards.json`: what was cut, and into what. classes: V. source: the digest of the manifest of what was cut."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: int
    classes: int
    dim: int
    max_k: int
    source: str
    shards: list[ShardEntry]


class ShardedHead(HeadArguments):
    """Heads of class ranges as one. Threads may share it."""

    def __init__(self, shard_list: ShardList, heads: list[Head]) -> None:
        """heads: of the shards, in their order."""
        self.manifest, self.heads = shard_list, heads
        self.ranges = [ClassRange(shard.start, shard.stop) for shard in shard_list.shards]

    @classmethod
    def open(cls, folder: Path, *, device: str | None = None, threads: int | None = None) -> Self:
        """Open what `shortlist shard` wrote; raises NotFound, BundleError, DeviceError."""
        shard_list = read_shard_list(folder)
        bundles = [Bundle(folder / shard.bundle) for shard in shard_list.shards]
        for shard, bundle in zip(shard_list.shards, bundles, strict=True):
            if bundle.manifest.digest != shard.digest:
                raise BundleError(f"{bundle.folder} is not the shard that {folder / SHARDS_FILE} names: cut again")
        return cls(shard_list, [Head(bundle, device, threads) for bundle in bundles])

    def topk(
        self,
        contexts: npt.ArrayLike,
        k: int,
        *,
        allow: IdLists = None,
        ban: IdLists = None,
        bias: BiasLike = None,
        exact: bool = False,
    ) -> TopK:
        """The k best classes of each context vector [B, d], as `Head.topk`; raises BadInput.

        `scored` adds up what all shards scored. The normaliser is the weakest of the shards'.
        """
        rows, k = self.check_contexts(contexts), self.check_k(k)
        class_filter = self.check_lists(allow, ban, len(rows))
        weights = parse_bias(bias, len(rows), self.manifest.classes)
        results: list[PlanResult] = []
        normalizers = []
        for head, part in zip(self.heads, self.ranges, strict=True):
            part_k = min(k, head.manifest.max_k)
            plan, normalizer = head.choose_plan(len(rows), part_k, exact, proof=weights is None)
            part_filter, part_bias = part.localize_filter(class_filter), part.localize_bias(weights)
            results.append(part.globalize(head.run(plan, rows, part_k, part_filter, part_bias)))
            normalizers.append(normalizer)
        return make_topk(merge_results(results, k), find_weakest_normalizer(normalizers))


def read_shard_list(folder: Path) -> ShardList:
    """`shards.json` of a folder; raises NotFound, BundleError."""
    path = folder / SHARDS_FILE
    try:
        return ShardList.model_validate_json(path.read_bytes())
    except OSError:
        raise NotFound(f"there is no {path}: cut a bundle with `shortlist shard`") from None
    except ValidationError as error:
        raise BundleError(f"{path} cannot be read ({error.errors()[0]['msg']}): cut the bundle again") from None
