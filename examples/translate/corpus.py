"""Parallel text, one tokenised sentence a line in each of two files, as ids in batches of about equal lengths."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

END, UNKNOWN = 0, 1  # ids of Marian's </s> and <unk>
SPECIALS = ("</s>", "<unk>")
SORTED_BATCHES = 50  # sentences of so many batches are sorted by length together


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; the first two are the end of a sentence and unknown words."""

    words: list[str]

    @classmethod
    def count(cls, lines: list[str], least: int) -> Vocabulary:
        """The words that occur at least so often, commonest first, equal ones by their letters."""
        counts = Counter(word for line in lines for word in line.split())
        common = sorted(
            (word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word)
        )
        return cls([*SPECIALS, *common])

    def encode(self, line: str) -> list[int]:
        """The ids of a line's words and the end."""
        return [*(self.places.get(word, UNKNOWN) for word in line.split()), END]

    @cached_property
    def places(self) -> dict[str, int]:
        """Ids by word."""
        return {word: id for id, word in enumerate(self.words)}

    def decode(self, ids: list[int]) -> str:
        """The words of `ids`, without the end."""
        return " ".join(self.words[id] for id in ids if id != END)

    def save(self, path: Path) -> None:
        """Write a file as Marian has it: a line `"word": id` each, the words' letters unescaped."""
        path.write_text(
            "".join(f"{json.dumps(word, ensure_ascii=False)}: {id}\n" for id, word in enumerate(self.words)), "utf-8"
        )


def load_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a file that `save` wrote."""
    return Vocabulary([json.loads(line.rsplit(": ", 1)[0]) for line in read_lines(path)])


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs: ids of the source and of the target, each with its end."""

    sources: list[list[int]]
    targets: list[list[int]]

    def __len__(self) -> int:
        return len(self.sources)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file: other ends of lines that Unicode knows, such as U+2028, stand inside of sentences."""
    text = path.read_bytes().decode("utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def encode_pairs(sources: list[str], targets: list[str], vocabularies: tuple[Vocabulary, Vocabulary]) -> Pairs:
    """Pairs of as many lines; both vocabularies' ids."""
    if len(sources) != len(targets):
        raise ValueError(f"there are {len(sources)} source lines and {len(targets)} target lines: make them pairs")
    if not sources:
        raise ValueError("there are no lines: give files of sentences")
    first, second = vocabularies
    return Pairs([first.encode(line) for line in sources], [second.encode(line) for line in targets])


def pad_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids [B, t] int64, with END behind shorter rows, and a mask [B, t]: True where a row has a token."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.full(mask.shape, END)
    ids[mask] = torch.tensor([id for row in rows for id in row])
    return ids, mask


def make_batches(pairs: Pairs, rows: int, seed: int) -> Iterator[list[int]]:
    """Places of all pairs in random order, in batches of at most `rows` pairs of about equal lengths."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(pairs))
    batches = []
    for start in range(0, len(order), rows * SORTED_BATCHES):
        pool = sorted(order[start : start + rows * SORTED_BATCHES], key=lambda place: len(pairs.targets[place]))
        batches += [[int(place) for place in pool[first : first + rows]] for first in range(0, len(pool), rows)]
    for place in random.permutation(len(batches)):
        yield batches[place]
