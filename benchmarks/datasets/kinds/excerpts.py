"""Excerpts of documents: from a line anywhere in it, each text once, none that is among the shipped texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

EXCERPT_CHARACTERS = 12_000
SHORT_CHARACTERS = 2_500  # of a text that is taken from its beginning, and of an excerpt at least
SHIPPED_TEXTS = Path("examples/text")
LONG_LINE_CHARACTERS = 30  # lines as long as this are hardly the same by chance
SHARED_LINES = 0.05  # share of its long lines with which a document is one of the shipped texts


def choose_excerpts(documents: Iterable[str], count: int, seed: int) -> list[str]:
    """At most `count` excerpts of different documents in random order, none of which is among the shipped texts."""
    random, shipped = np.random.default_rng(seed), read_shipped_lines()
    texts = list(dict.fromkeys(documents))
    order = random.permutation(len(texts))
    others = (texts[index] for index in order if not is_shipped(texts[index], shipped))
    return [cut_excerpt(text, random) for text, _ in zip(drop_copies(others), range(count), strict=False)]


def cut_excerpt(text: str, random: np.random.Generator) -> str:
    """A part that begins at a line, of a long text: licences at the top of files are left behind."""
    spare = len(text) - SHORT_CHARACTERS
    if spare <= 0:
        return text
    start = int(random.integers(spare))
    line = text.find("\n", start, start + SHORT_CHARACTERS // 2) + 1
    return text[line or start :][:EXCERPT_CHARACTERS]


def drop_copies(texts: Iterable[str]) -> Iterator[str]:
    """The texts without those that begin like an earlier one, but for spaces and marks."""
    seen = set()
    for text in texts:
        start = "".join(character for character in text[:2000] if character.isalnum())[:500]
        if start not in seen:
            seen.add(start)
            yield text


def read_shipped_lines() -> set[str]:
    """The long lines of the shipped texts."""
    return {line for path in SHIPPED_TEXTS.glob("*.txt") for line in list_long_lines(path.read_text("utf-8"))}


def is_shipped(text: str, shipped: set[str]) -> bool:
    """Whether some of a text is among the lines `shipped`."""
    lines = list_long_lines(text)
    return sum(line in shipped for line in lines) > SHARED_LINES * len(lines)


def list_long_lines(text: str) -> list[str]:
    return [line for part in text.splitlines() if len(line := " ".join(part.split())) >= LONG_LINE_CHARACTERS]
