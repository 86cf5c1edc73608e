"""The versions of one model, and which of them a request asks: by number, by alias, or by a share of the traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shortlist.core.checks import cut
from shortlist.errors import NotFound
from shortlist.server.models import Model

from .declaration import STABLE, Declaration

HASH_BYTES = 8
HASH_RANGE = 2 ** (8 * HASH_BYTES)


def place_alias(declared: int, before: int | None, versions: Mapping[int, Any]) -> int | None:
    """The one of `versions` that an alias leads to, which may not have the version that was declared.

    The one that it led to before, else the newest one that is older, else the newest; None where there are none.
    """
    if declared in versions:
        return declared
    if before in versions:
        return before
    older = [version for version in versions if version < declared]
    return max(older or versions, default=None)


@dataclass(frozen=True, slots=True)
class VersionTable:
    """The versions of one model. A table is never changed, another one takes its place.

    by_number: every version, ascending, at least one. before: the version that each alias led to before the one that
    is declared. fault: why the model's file was not read, so that the declaration is the one before it.
    """

    name: str
    by_number: dict[int, Model]
    declaration: Declaration = field(default_factory=Declaration)
    before: Mapping[str, int] = field(default_factory=dict)
    fault: str | None = None

    def find_version(self, version: int) -> Model:
        """One version; raises NotFound."""
        model = self.by_number.get(version)
        if model is None:
            raise NotFound(f"Request for unknown model: '{cut(self.name)}' version {version} is not found")
        return model

    def answers(self, version: int) -> bool:
        """Whether there is such a version, and it has a head."""
        model = self.by_number.get(version)
        return model is not None and model.head_in_use is not None

    def find_latest(self) -> Model:
        """The latest version that is ready, or where none is, the latest."""
        last = self.by_number[next(reversed(self.by_number))]
        if last.state == "ready":
            return last
        ready = [number for number, model in self.by_number.items() if model.state == "ready"]
        return self.by_number[max(ready or self.by_number)]

    def find_alias(self, alias: str) -> Model:
        """The version that an alias leads to now; raises NotFound."""
        self.check_alias(alias)
        declared = self.declaration.aliases[alias]
        model = self.by_number.get(declared.version)
        if model is not None and model.state == "ready":
            return model
        ready = {number: model for number, model in self.by_number.items() if model.state == "ready"}
        place = place_alias(declared.version, self.before.get(alias), ready)
        return self.find_latest() if place is None else self.by_number[place]

    def check_alias(self, alias: str) -> None:
        """Raise NotFound where the model has no such alias."""
        if alias not in self.declaration.aliases:
            raise NotFound(f"Request for unknown model: '{cut(self.name)}' has no alias '{cut(alias)}'")

    def find_default(self, content: bytes | None) -> Model:
        """The version for a request without one: of the alias to whose share it belongs, else `stable`, else latest.

        content: of the request; the same request always belongs to the same share, whichever server it reaches.
        None for what belongs to no share.
        """
        aliases = self.declaration.aliases
        if STABLE not in aliases:
            return self.find_latest()
        alias = STABLE if content is None else self.choose_alias(content)
        model = self.by_number.get(aliases[alias].version)
        return model if model is not None and model.state == "ready" else self.find_alias(STABLE)

    def choose_alias(self, content: bytes) -> str:
        """The alias to whose share a request belongs, `stable` where to none.

        The hash is keyed by the versions that have a share, so that each release is tried on other requests. Who wants
        one version names it, so that nobody gains by knowing the key.
        """
        shares = [(name, alias) for name, alias in sorted(self.declaration.aliases.items()) if alias.share]
        if not shares:
            return STABLE
        key = repr((self.name, [(name, alias.version) for name, alias in shares])).encode()
        digest = hashlib.blake2b(content, digest_size=HASH_BYTES, key=hashlib.blake2b(key, digest_size=32).digest())
        place = int.from_bytes(digest.digest(), "big") / HASH_RANGE
        for name, alias in shares:
            place -= alias.share
            if place < 0:
                return name
        return STABLE

    def locate_aliases(self) -> dict[str, int]:
        """The version that each alias leads to now."""
        aliases = self.declaration.aliases if self.by_number else ()
        return {alias: self.find_alias(alias).version for alias in aliases}

    def with_versions(self, models: Mapping[int, Model], declaration: Declaration, fault: str | None) -> VersionTable:
        """The table that takes the place of this one."""
        places = {
            alias: place
            for alias, place in self.locate_aliases().items()
            if alias in declaration.aliases and place != declaration.aliases[alias].version
        }
        ready = {alias: place for alias, place in places.items() if self.by_number[place].state == "ready"}
        return VersionTable(self.name, dict(sorted(models.items())), declaration, dict(self.before) | ready, fault)
