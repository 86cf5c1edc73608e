"""Peers on a catalogue: each is built as its authors advise for so many rows, and set to the recall that is asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import sqrt

from shortlist.core.results import FloatArray, IdArray
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, Options
from benchmarks.contenders.registry import CONTENDERS

from .measure import measure_recall

WANTED_RECALL = 0.99
NEAR_ROWS = 200  # by which a setting is chosen

# Name in tables; contender; whether it is a graph, which takes tens of minutes to build over millions of rows.
PEERS = (
    ("ScaNN tree", "scann tree", False),
    ("FAISS IVF, int8", "faiss IVF", False),
    ("FAISS HNSW", "faiss HNSW", True),
    ("hnswlib", "hnswlib ip", True),
    ("usearch", "usearch", True),
)


@dataclass(frozen=True)
class Peer:
    """A peer that was built and set. recall: of the rows that chose its setting; under that wanted, it has no more."""

    name: str
    contender: Contender
    setting: str
    build_seconds: float
    recall: float


def list_peers(*, graphs: bool) -> list[str]:
    """The names of peers, of graphs only where they are asked for."""
    return [name for name, _, is_graph in PEERS if graphs or not is_graph]


def build_peers(
    dense: Dense, contexts: FloatArray, asked: FloatArray, true: IdArray, names: Collection[str]
) -> Iterator[Peer | str]:
    """Each peer of these names, or a sentence on why there is none; one at a time, so that one alone is in memory."""
    for name, kind, is_graph in PEERS:
        if name not in names:
            how = "--graphs builds it, in tens of minutes for millions of rows" if is_graph else "--peers names others"
            yield f"{name}: not built; {how}"
            continue
        contender = CONTENDERS[kind](choose_build(kind, dense), threads=1)
        start = time.monotonic()
        try:
            contender.fit(dense, contexts)
        except ImportError as error:
            yield f"{name}: not measured, {error}"
            continue
        yield set_recall(name, contender, time.monotonic() - start, asked[:NEAR_ROWS], true[:NEAR_ROWS])


def choose_build(kind: str, dense: Dense) -> Options:
    """How it is built: rows as they are, since an inner product is what is asked for."""
    builds: dict[str, Options] = {
        "scann tree": {"basis": "raw", "leaves": round(2 * sqrt(dense.classes))},
        "faiss IVF": {"basis": "raw", "cells": round(4 * sqrt(dense.classes)), "codes": "SQ8"},
        "faiss HNSW": {"basis": "raw", "lift": False, "links": 32, "construction": 100},
        "hnswlib ip": {"basis": "raw", "links": 16, "construction": 200},
        "usearch": {"basis": "raw", "lift": False, "dtype": "f32", "links": 16, "construction": 200},
    }
    return builds[kind]


def list_settings(contender: Contender) -> list[Options]:
    """Settings by rising cost: finer steps than the grids of `make bench`, whose layers are smaller."""
    parts = contender.build.get("leaves") or contender.build.get("cells")
    if parts is None:
        return contender.settings()
    shares = sorted({max(1, parts // share) for share in (256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 2)})
    if "leaves" in contender.build:
        return [{"leaves": share, "reorder": count} for share in shares for count in (200, 1000)]
    return [{"nprobe": share, "refined": 50} for share in shares]


def set_recall(name: str, contender: Contender, seconds: float, asked: FloatArray, true: IdArray) -> Peer:
    """The peer at its first setting with the wanted recall, or at its most precise one."""
    best: tuple[float, Options] = (-1.0, {})
    for setting in list_settings(contender):
        contender.use(setting)
        recall = measure_recall(lambda rows: contender.topk(rows, true.shape[1]), asked, true).mean
        best = max(best, (recall, setting), key=lambda pair: pair[0])
        if recall >= WANTED_RECALL:
            break
    contender.use(best[1])
    text = ", ".join(f"{option} {value:,}" for option, value in best[1].items())
    return Peer(name, contender, text, seconds, best[0])
