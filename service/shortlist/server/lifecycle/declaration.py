"""What a model's folder declares beside its versions: which of them are served, and their aliases.

`<name>/model.json` may be missing. Every field of it is optional:

    {"latest": 2, "aliases": {"stable": {"version": 3}, "canary": {"version": 4, "share": 0.05}}}
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shortlist.core.checks import cut
from shortlist.errors import BundleError

DECLARATION_FILE = "model.json"
MAX_DECLARATION_BYTES = 64 << 10
STABLE = "stable"  # the alias that answers requests without a version

AliasName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,62}$")]  # no number, which would be a version
Version = Annotated[int, Field(ge=1)]


class Alias(BaseModel):
    """A name for a version. share: of the requests that name no version, how many it answers, from 0 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Version
    share: float = Field(0.0, ge=0, le=1)


class Declaration(BaseModel):
    """The content of a model's `model.json`.

    latest: so many of the newest versions are served. pinned: these are. aliases: theirs always are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    latest: Version | None = None
    pinned: Annotated[tuple[Version, ...], Field(min_length=1)] | None = None
    aliases: dict[AliasName, Alias] = {}

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Raise ValueError where fields contradict each other."""
        shares = [alias.share for alias in self.aliases.values() if alias.share]
        stable = self.aliases.get(STABLE)
        if self.latest is not None and self.pinned is not None:
            raise ValueError("latest and pinned exclude each other: give one of them")
        if shares and (stable is None or stable.share):
            raise ValueError(f"an alias has a share: declare '{STABLE}' without one, which answers the rest")
        if sum(shares) > 1:
            raise ValueError("the shares are more than 1 together")
        return self

    def choose(self, usable: Collection[int], latest: int | None) -> set[int]:
        """Which of the versions that could be served are, aliases apart. latest: where the file says nothing."""
        if self.pinned is not None:
            return set(usable) & set(self.pinned)
        count = self.latest or latest
        return set(sorted(usable)[-count:] if count else usable)


def read_declaration(folder: Path) -> Declaration:
    """What the model of this folder declares, the defaults where it has no file; raises BundleError."""
    path = folder / DECLARATION_FILE
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DECLARATION_BYTES + 1)
    except FileNotFoundError:
        return Declaration()
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror}): give this user access to it") from error
    if len(content) > MAX_DECLARATION_BYTES:
        raise BundleError(f"{path} has over {MAX_DECLARATION_BYTES} bytes: declare fewer aliases")
    try:
        return Declaration.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = cut(first["msg"].removeprefix("Value error, "))
        raise BundleError(f"{path} is wrong{f' at {place!r}' if place else ''} ({reason}): mend that file") from None


def check_pinned(declaration: Declaration, folder: Path, versions: Collection[int]) -> None:
    """Raise BundleError where no version of the model of this folder would be served, since others are pinned."""
    pinned = declaration.pinned
    if pinned is not None and versions and not declaration.aliases and set(pinned).isdisjoint(versions):
        numbers = ", ".join(map(str, pinned))
        raise BundleError(
            f"{folder / DECLARATION_FILE} pins {cut(numbers)}, and none of that is among the versions here: mend that "
            "file, or put the version there"
        )
