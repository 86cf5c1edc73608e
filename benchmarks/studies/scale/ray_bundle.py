"""The head that the cluster serves."""

from __future__ import annotations

from pathlib import Path

from shortlist.bundle.reader import Bundle

from .heads import open_bundle, open_shard_folder

CLASSES, DIM, SHARDS = 20_000, 64, 2


def open_ray_shards(cache: Path) -> tuple[Bundle, Path]:
    """The bundle and the folder of its shards."""
    bundle = open_bundle(cache, CLASSES, DIM, "full")
    return bundle, open_shard_folder(bundle, SHARDS)
