"""API keys: a name, roles and a secret each, read from a file or a variable, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shortlist.core.checks import cut
from shortlist.errors import BadInput

MIN_SECRET_CHARACTERS = 16
SECRET_PATTERN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # what a bearer token may consist of
SEPARATOR_PATTERN = re.compile(r"[\n;]")
COMMENT = "#"


class Role(StrEnum):
    """What a key allows: questions to the models, looking at the server, changing what it serves and logs."""

    ASK = "ask"
    OBSERVE = "observe"
    ADMINISTER = "administer"


Roles = frozenset[Role]
ALL_ROLES: Roles = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Key:
    """One key. digest: SHA-256 of its secret, of which nothing else is kept."""

    name: str
    roles: Roles
    digest: bytes


class KeyRing:
    """The keys that a server knows; they never change: a server that reads them again makes a new ring."""

    def __init__(self, keys: list[Key], source: str) -> None:
        """source: where they came from, for errors. Raises BadInput where there is none, or one stands twice."""
        if not keys:
            raise BadInput(f"{source} holds no API key: write a line `name roles key`, as in `decoder ask KEY`")
        if len({key.name for key in keys}) < len(keys) or len({key.digest for key in keys}) < len(keys):
            raise BadInput(f"{source} has a name or a key twice: give every key a name of its own")
        self.keys = tuple(keys)

    def find(self, secret: bytes) -> Key | None:
        """The key with this secret. How long that takes says nothing about the keys: all of them are compared."""
        digest, match = hashlib.sha256(secret).digest(), None
        for key in self.keys:
            if hmac.compare_digest(digest, key.digest):
                match = key
        return match


def read_keys(file: Path | None, text: str | None) -> KeyRing | None:
    """The keys of a file and of a variable's text together, None where both are None; raises BadInput."""
    if file is None and text is None:
        return None
    keys = [] if text is None else parse_keys(text, "SHORTLIST_API_KEYS")
    if file is not None:
        keys += parse_keys(read_text(file), str(file))
    return KeyRing(keys, "SHORTLIST_API_KEYS" if file is None else str(file))


def read_text(file: Path) -> str:
    """The text of a file of keys; raises BadInput."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BadInput(f"the file of API keys {file} cannot be read: {reason}") from None


def parse_keys(text: str, source: str) -> list[Key]:
    """The keys of a text: one a line, or separated by semicolons; raises BadInput, which shows no secret."""
    entries = (entry.partition(COMMENT)[0].split() for entry in SEPARATOR_PATTERN.split(text))
    return [parse_key(entry, f"{source}, entry {number}") for number, entry in enumerate(entries, 1) if entry]


def parse_key(words: list[str], where: str) -> Key:
    """The key of one entry, `name roles key`; raises BadInput."""
    if len(words) != 3:
        raise BadInput(f"{where} has {len(words)} words: write `name roles key`, as in `oncall ask,administer KEY`")
    name, roles, secret = words
    unknown = sorted(set(roles.split(",")) - {*Role})
    if unknown:
        raise BadInput(f"{where} has the role '{cut(unknown[0])}': known are {', '.join(Role)}")
    if len(secret) < MIN_SECRET_CHARACTERS or not SECRET_PATTERN.fullmatch(secret):
        raise BadInput(
            f"{where} has a key that is too short or has other characters than letters, digits and ._~+/=-: "
            f"give {MIN_SECRET_CHARACTERS} random ones or more"
        )
    return Key(name, frozenset(map(Role, roles.split(","))), hashlib.sha256(secret.encode()).digest())
