"""Named sets of a share of all items: ours, what one codes by hand, and peers' own filters, each user by user."""

from __future__ import annotations

from math import ceil, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, write_set
from shortlist.core.results import BoolArray, FloatArray, IdArray
from shortlist.evaluation.timing import Call
from shortlist.head import Head

from .measure import Pace, find_best, measure_recall, time_users
from .ours import MODEL
from .peers import Peer

SHARES = {"1 %": 0.01, "10 %": 0.1, "50 %": 0.5}
ASKED_SPREADS = (
    3  # standard deviations of how many of those asked for are members, which one who filters by hand allows
)
SETS, BY_MORE, BY_SCORES = "named set", "by hand: ask for more", "by hand: score the set"
IDS, BY_MARKS = "list of ids", "by hand: mark the ids, ask for more"
SET_COLUMNS = ("of all items", "way", "recall@k", "us, mean", "median")
SET_USERS = 200  # that are asked for


class Members(NamedTuple):
    """A set by the name in tables, its file's name, its marks [V], its ids [m] and the true best of users [n, k]."""

    share: str
    key: str
    marks: BoolArray
    ids: IdArray
    true: IdArray


def make_sets(repository: Path, items: FloatArray, users: FloatArray, k: int) -> list[Members]:
    """Sets of random items, put beside the versions of the model, as clients put them."""
    random, sets = np.random.default_rng(1), []
    for name, share in SHARES.items():
        marks = random.random(len(items)) < share
        ids, key = marks.nonzero()[0], f"share-{share}"
        write_set(repository / MODEL / SETS_FOLDER, key, pack_set(ids))
        sets.append(Members(name, key, marks, ids, ids[find_best(items[ids], users, k)]))
    return sets


def measure_sets(
    head: Head, items: FloatArray, users: FloatArray, sets: list[Members], table: Table
) -> dict[str, dict[str, Any]]:
    """Recall and microseconds of named sets and of lists of their ids, beside ways by hand, interleaved by share."""
    line = {}
    for members in sets:
        calls = list_ways(head, items, members)
        paces = time_users(calls, users)
        line[members.share] = {
            name: add_row(name, call, paces[name], users, members, table) for name, call in calls.items()
        }
    return line


def list_ways(head: Head, items: FloatArray, members: Members) -> dict[str, Call]:
    """Ids [1, k] of one user's best members, by name of the way."""
    k = members.true.shape[1]
    asked = ceil((k + ASKED_SPREADS * sqrt(k)) * len(items) / len(members.ids))

    def ask_for_more(user: FloatArray, marks: BoolArray = members.marks) -> IdArray:
        ids = head.topk(user, min(asked, head.manifest.max_k)).ids[0]
        return np.resize(ids[marks[ids]], k)[None]

    def mark_ids(user: FloatArray) -> IdArray:
        marks = np.zeros(len(items), bool)
        marks[members.ids] = True
        return ask_for_more(user, marks)

    def score_set(user: FloatArray) -> IdArray:
        scores = items[members.ids] @ user[0]
        best = np.argpartition(-scores, k)[:k]
        return members.ids[best[np.argsort(-scores[best])]][None]

    return {
        SETS: lambda user: head.topk(user, k, within=members.key).ids,
        BY_MORE: ask_for_more,
        BY_SCORES: score_set,
        IDS: lambda user: head.topk(user, k, allow=members.ids).ids,
        BY_MARKS: mark_ids,
    }


def measure_filter(
    head: Head, peer: Peer, users: FloatArray, sets: list[Members], table: Table
) -> dict[str, dict[str, Any]]:
    """The same of a peer's own filter, beside our named sets; nothing where it has none."""
    if not peer.contender.has_filter:
        return {}
    line = {}
    for members in sets:
        k = members.true.shape[1]
        select = peer.contender.make_filter(members.marks)
        calls: dict[str, Call] = {
            SETS: lambda user, members=members, k=k: head.topk(user, k, within=members.key).ids,  # type: ignore[misc]
            peer.name: lambda user, select=select, k=k: peer.contender.topk_permitted(user, k, select),  # type: ignore[misc]
        }
        paces = time_users(calls, users)
        figures = add_row(f"{peer.name}, its filter", calls[peer.name], paces[peer.name], users, members, table)
        line[members.share] = {**figures, "ours_us": round(paces[SETS].mean)}
    return line


def add_row(name: str, call: Call, pace: Pace, users: FloatArray, members: Members, table: Table) -> dict[str, float]:
    """Recall and microseconds of one way, which also become a row of the table."""
    recall = measure_recall(call, users, members.true).mean
    table.add_row(members.share, name, f"{recall:.4f}", f"{pace.mean:,.0f}", f"{pace.median:,.0f}")
    return {"us": round(pace.mean), "median_us": round(pace.median), "recall": round(recall, 5)}
