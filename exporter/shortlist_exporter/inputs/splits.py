"""Fit rows and held-out rows, in two parts or three; a document is held out whole, where the contexts say which.

One rule for all: of the documents, in the order they end in, the last ones are held out that hold a tenth of the rows.
Where these leave a kind of text out, or hold most of it, each kind is split by that rule for itself. What is fitted on
is never measured: a context of one part that another part repeats counts there no more. Where most contexts repeat so,
only the first row of each is split by the rule, and its copies go where it goes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import find_kind_rows

from .sources import Contexts

HELD_OUT_FRACTION = 10  # one row in ten is held out
MAX_HELD_OUT_ROWS = 4096  # more than these are not measured at an export
MOST_OF_A_KIND = 0.7  # of the rows of a kind of text: a part that holds more leaves too little of it to fit on
MAX_SHARES = 2  # that a part may hold of a kind of text to keep its documents whole

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Documents = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Splits:
    """Indices of rows to fit on, ascending, and of distinct rows to tune on and to test on, in random order.

    No document has rows in two of them, but one that holds much of its kind of text.
    """

    fit: Rows
    tune: Rows
    test: Rows


class Copies(NamedTuple):
    """Contexts that are equal. first: [m], ascending, the first row of each; owner: [n], of which of these a row is."""

    first: Rows
    owner: Rows

    def take_first(self, contexts: Contexts) -> Contexts:
        """The first rows with their documents and kinds, and one column of their vectors."""
        documents = None if contexts.documents is None else contexts.documents[self.first]
        return replace(contexts, contexts=contexts.contexts[self.first, :1], targets=None, documents=documents)

    def drop_known(self, part: Mask, others: Mask) -> Mask:
        """[n]: the rows of `part` [n] to which no row of `others` [n] is equal."""
        is_known = mark_rows(self.owner[others], len(self.first))
        return part & ~is_known[self.owner]

    def are_mostly_known(self, part: Mask, others: Mask) -> bool:
        """Whether more than half of the different contexts of `part` [n] are among `others` [n], too."""
        new = np.unique(self.owner[self.drop_known(part, others)])
        return 2 * len(new) < len(np.unique(self.owner[part]))


def split_held_out(contexts: Contexts, seed: int, least: int = 1) -> tuple[Rows, Rows]:
    """Indices of the fit rows and of at most `MAX_HELD_OUT_ROWS` distinct held-out rows, in random order.

    least: rows that are held out where a tenth of them is less. Raises BadInput when there are too few rows to hold any
    out.
    """
    rows = len(contexts.contexts)
    if rows < 2:
        raise BadInput("contexts hold a single row: give at least 2, one to fit and one to hold out")
    copies, held_out = find_copies(contexts.contexts), mark_held_out(contexts, least)
    if copies.are_mostly_known(held_out, ~held_out):
        held_out = mark_held_out(copies.take_first(contexts), least)[copies.owner]
    measured = copies.drop_known(held_out, ~held_out)
    return np.flatnonzero(~held_out), sample_rows(contexts, measured, seed, MAX_HELD_OUT_ROWS)


def split_three_ways(
    contexts: Contexts, seed: int, max_tune: int, max_test: int, test: Contexts | None = None
) -> Splits:
    """The last documents that hold a tenth of the rows test, those that hold the tenth before it tune, the rest fits.

    By kind of text where that is needed, as `mark_part` does.
    test: contexts of which every row tests instead, and which `Splits.test` indexes. Raises BadInput when nothing is
    left to fit on.
    """
    copies, (tested, tuned) = find_copies(contexts.contexts), mark_two_parts(contexts, test is None)
    if copies.are_mostly_known(tested, ~(tested | tuned)) or copies.are_mostly_known(tuned, ~tuned):
        tested, tuned = (part[copies.owner] for part in mark_two_parts(copies.take_first(contexts), test is None))
    fit = ~(tested | tuned)
    if not fit.any():
        raise make_too_few_error(contexts.documents, "fit, tune and test" if test is None else "fit and tune")
    tune_rows = sample_rows(contexts, copies.drop_known(tuned, ~tuned), seed, max_tune)
    if test is None:
        test_rows = sample_rows(contexts, copies.drop_known(tested, fit), seed, max_test)
    else:
        test_rows = sample_rows(test, np.ones(len(test.contexts), np.bool_), seed, max_test)
    return Splits(np.flatnonzero(fit), tune_rows, test_rows)


def mark_two_parts(contexts: Contexts, tests: bool) -> tuple[Mask, Mask]:
    """[n] twice: the rows that test, none unless `tests`, and those that tune."""
    every = np.ones(len(contexts.contexts), np.bool_)
    tested = mark_part(contexts, every) if tests else ~every
    return tested, mark_part(contexts, ~tested)


def find_copies(contexts: npt.NDArray[np.float32]) -> Copies:
    """Which rows of `contexts` [n, d] are equal; none where all are, since they could not be split."""
    hashes = hash_rows(contexts)
    _, first, owner = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) < 2:
        return Copies(np.arange(len(hashes)), np.arange(len(hashes)))
    order = np.argsort(first)
    return Copies(first[order], np.argsort(order)[owner])


def count_distinct(contexts: npt.NDArray[np.float32]) -> int:
    """How many different rows `contexts` [n, d] has."""
    return len(np.unique(hash_rows(contexts)))


def hash_rows(contexts: npt.NDArray[np.float32]) -> Rows:
    """[n]: 64 bits of a hash of each row of `contexts` [n, d]; a zero is the same with either sign."""
    digests = b"".join(blake2b((row + 0).tobytes(), digest_size=8).digest() for row in contexts)
    return np.frombuffer(digests, np.int64)


def drop_known_rows(rows: Rows, test: Contexts, contexts: Contexts) -> Rows:
    """`rows` of `test` without those whose context vector is one of `contexts`."""
    known = np.isin(hash_rows(test.contexts[rows]), hash_rows(contexts.contexts))
    return rows[~known]


def mark_held_out(contexts: Contexts, least: int = 1) -> Mask:
    """[n]: the rows that an export holds out, as `mark_part` does; where these are all, the last tenth of the rows.

    least: rows, which are held out where a tenth is less.
    """
    every = np.ones(len(contexts.contexts), np.bool_)
    held_out = mark_part(contexts, every, least)
    return mark_last_documents(None, every, least) if held_out.all() else held_out


def mark_part(contexts: Contexts, among: Mask, least: int = 1) -> Mask:
    """[n]: as `mark_last_documents`, but for each kind of text by itself where that has none of a kind, or most of it.

    Files of capture by weights, whose texts take turns, are fair as they lie, if no text is but a few documents.
    """
    part = mark_last_documents(contexts.documents, among, least)
    kinds = list_kind_masks(contexts)
    if all(0 < part[kind & among].mean() <= MOST_OF_A_KIND for kind in kinds if (kind & among).any()):
        return part
    share = max(least, len(among) // HELD_OUT_FRACTION) / len(among)
    parts = np.any([mark_last_of_kind(contexts.documents, kind, among, share) for kind in kinds], axis=0)
    return np.asarray(parts if parts.any() else part, np.bool_)  # of kinds of a few rows each none has a tenth


def list_kind_masks(contexts: Contexts) -> list[Mask]:
    """[n] for each kind of text that has rows, and for the rows of no kind; none where fewer than two have any."""
    marks = [mark_rows(rows, len(contexts.contexts)) for rows in contexts.kind_rows.values()]
    if marks and not (named := np.any(marks, axis=0)).all():
        marks.append(~named)
    return marks if len(marks) > 1 else []


def mark_rows(rows: Rows, count: int) -> Mask:
    """[count]: whether each row is one of `rows`."""
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


def mark_last_of_kind(documents: Documents | None, kind: Mask, among: Mask, share: float) -> Mask:
    """[n]: of the rows `among`, the last documents of a kind that hold `share` of its rows.

    Where these hold more than `MAX_SHARES` times as many, as of a kind that is two documents, the last rows are marked
    in their place, and a document is cut.
    """
    least, some = round(share * int(kind.sum())), kind & among
    part = mark_last_rows(documents, some, least)
    return mark_last_rows(None, some, least) if part.sum() > MAX_SHARES * least else part


def mark_last_documents(documents: Documents | None, among: Mask, least: int = 1) -> Mask:
    """[n]: of the rows `among` [n], those of the last documents: as many as it takes to hold a tenth of all n.

    least: rows that they hold where a tenth is less.
    """
    return mark_last_rows(documents, among, max(least, len(among) // HELD_OUT_FRACTION))


def mark_last_rows(documents: Documents | None, among: Mask, least: int) -> Mask:
    """[n]: of the rows `among` [n], those of the last documents: as many as it takes to hold `least` rows."""
    last = find_last_rows(documents, len(among))
    _, order = np.unique(last, return_inverse=True)  # documents in the order they end in
    sizes = np.bincount(order[among], minlength=int(order.max(initial=0)) + 1)
    rows_after = sizes[::-1].cumsum()[::-1] - sizes
    return np.asarray(among & (rows_after[order] < least))


def find_last_rows(documents: Documents | None, rows: int) -> Rows:
    """[rows]: the last row of each row's document; the row itself where the contexts do not say."""
    if documents is None:
        return np.arange(rows)
    _, owner = np.unique(documents, return_inverse=True)
    last = np.zeros(owner.max(initial=0) + 1, np.int64)
    last[owner] = np.arange(rows)  # of a document's rows the last one's number stays
    return last[owner]


def make_too_few_error(documents: Documents | None, parts: str) -> BadInput:
    """The error that is raised where the rows cannot be split."""
    content = "too few rows" if documents is None else f"{len(np.unique(documents))} documents"
    return BadInput(f"contexts hold {content}, too few for {parts} splits by document: capture more text")


def sample_rows(contexts: Contexts, part: Mask, seed: int, limit: int) -> Rows:
    """At most `limit` distinct rows of `part` [n], in random order; of at most twice as many drawn."""
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(part))[: 2 * limit]
    return drop_repeated_rows(contexts.contexts, shuffled)[:limit]


def drop_repeated_rows(contexts: npt.NDArray[np.float32], rows: Rows) -> Rows:
    """`rows` without those whose context vector an earlier one has."""
    _, first = np.unique(hash_rows(contexts[rows]), return_index=True)
    return rows[np.sort(first)]


def select_rows(contexts: Contexts, rows: Rows) -> Contexts:
    """Some rows of a sample, with their targets, documents and kinds."""
    targets = None if contexts.targets is None else contexts.targets[rows]
    documents = None if contexts.documents is None else contexts.documents[rows]
    return Contexts(contexts.contexts[rows], targets, documents, kinds=contexts.kinds)


def shuffle_documents(contexts: Contexts, seed: int) -> Contexts:
    """The same rows with their documents in random order, those of each kind of text spread evenly over it.

    So the last tenth has about a tenth of every kind that has ten documents and more, and one of those that have five.
    The rows as they are where the contexts name no documents.
    """
    if contexts.documents is None:
        return contexts
    numbers, owner = np.unique(contexts.documents, return_inverse=True)
    rng = np.random.default_rng(seed)
    place = rng.random(len(numbers))
    # In the later half of one of n steps each, so that the last of five documents and more is in the last tenth.
    for members in find_kind_rows(numbers, contexts.kinds).values():
        place[members] = (rng.permutation(len(members)) + (1 + rng.random(len(members))) / 2) / len(members)
    return select_rows(contexts, np.argsort(place[owner], kind="stable"))
