"""`shards.json`: which bundles hold which classes of a head."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shortlist.errors import BundleError, NotFound

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

    def make_cut_digest(self) -> bytes:
        """What is the same for all shards of one cut of one version, and for no others."""
        return sha256(self.model_dump_json().encode()).digest()


def read_shard_list(folder: Path) -> ShardList:
    """`shards.json` of a folder; raises NotFound, BundleError."""
    path = folder / SHARDS_FILE
    try:
        return ShardList.model_validate_json(path.read_bytes())
    except OSError:
        raise NotFound(f"there is no {path}: cut a bundle with `shortlist shard`") from None
    except ValidationError as error:
        raise BundleError(f"{path} cannot be read ({error.errors()[0]['msg']}): cut the bundle again") from None
