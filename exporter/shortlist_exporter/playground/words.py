"""Classes by the words that people type, and labels as a page can show them."""

from __future__ import annotations

from collections import defaultdict
from weakref import WeakKeyDictionary

from shortlist.core.checks import cut
from shortlist.core.results import NO_CLASS, Labels
from shortlist.errors import BadInput
from shortlist.head import Head

MAX_LABEL_CHARS = 200
MAX_ID_DIGITS = 18  # a longer number is no class, and Python reads none of thousands of digits
QUOTE = '"'


class Words:
    """Finds the classes of words in the labels of heads, or in the names of heads that have those alone.

    The first search in a head's labels sorts all of them.
    """

    def __init__(self) -> None:
        self.ids_by_word: WeakKeyDictionary[Head, dict[str, list[int]]] = WeakKeyDictionary()

    def find_ids(self, head: Head, labels: Labels | None, names: list[str]) -> list[int] | None:
        """The ids of classes that are named by number, label or name; None where none are named. Raises BadInput.

        A label is meant with or without spaces around it; in double quotes, as it is. A name is meant as it is.
        """
        ids = [number for name in names if name.strip() for number in self.find_class(head, labels, name.strip())]
        return ids or None

    def find_class(self, head: Head, labels: Labels | None, name: str) -> list[int]:
        """The classes of one name; raises BadInput where there is none."""
        if name.isascii() and name.isdigit() and len(name) <= MAX_ID_DIGITS:
            return [int(name)]
        if labels is None and head.names is None:
            raise BadInput(f"{head.manifest.name} has no labels: name classes by their numbers, not '{cut(name)}'")
        quoted = len(name) > 1 and name[0] == name[-1] == QUOTE
        label = name[1:-1] if quoted else name
        ids = find_named(head, label) if labels is None else self.find_labelled(head, labels, label, quoted)
        if not ids:
            raise BadInput(
                f"no class of {head.manifest.name} is called '{cut(label)}': name one by its number or label"
            )
        return ids

    def find_labelled(self, head: Head, labels: Labels, label: str, quoted: bool) -> list[int]:
        """The classes with this label, also with spaces around it where it is not quoted."""
        ids = self.index(head, labels).get(label.strip(), [])
        return [number for number in ids if not quoted or labels[number] == label]

    def index(self, head: Head, labels: Labels) -> dict[str, list[int]]:
        """The ids of every label, without spaces around it."""
        if head not in self.ids_by_word:
            ids: dict[str, list[int]] = defaultdict(list)
            for number, label in enumerate(labels[:-1]):
                ids[label.strip()].append(number)
            self.ids_by_word[head] = ids
        return self.ids_by_word[head]


def find_named(head: Head, name: str) -> list[int]:
    """The class that has this name; none where no class has."""
    ids = [] if head.names is None else head.names.find([name]).tolist()
    return [number for number in ids if number != NO_CLASS]


def shorten(label: str | None) -> str | None:
    """A label of at most `MAX_LABEL_CHARS` characters."""
    return (
        label
        if label is None or len(label) <= MAX_LABEL_CHARS
        else f"{label[: MAX_LABEL_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
