"""Our head at its defaults, and three peers, each at its setting for P@1 .99 on WikiText's test text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.statistics import compute_precision
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.common.dense import TopK
from benchmarks.contenders.registry import CONTENDERS, Contender, Options

OURS = "shortlist grouped"
TUNED_P1 = 0.99
TUNED_ROWS = 4096  # of WikiText's test text, at random
ASKED_ROWS = 8  # in one call
# Name in tables, contender, build, settings by rising cost: those of the whole grid of `make bench FULL=1` near .99.
PEERS: tuple[tuple[str, str, Options, tuple[Options, ...]], ...] = (
    (
        "scann tree, raw",
        "scann tree",
        {"basis": "raw", "leaves": 222},
        tuple({"leaves": leaves, "reorder": 1000} for leaves in (27, 55, 111, 222)),
    ),
    (
        "scann tree, whitened",
        "scann tree",
        {"basis": "whitened", "leaves": 443},
        tuple({"leaves": leaves, "reorder": 200} for leaves in (27, 55, 110, 221, 443)),
    ),
    (
        "int8 rows",
        "int8 rows, onnxruntime",
        {"basis": "raw"},
        tuple({"rescored": count} for count in (8, 16, 32, 64)),
    ),
)


@dataclass(frozen=True)
class Asked:
    """A contender as it is measured. key: what tells its answers from others. reaches: whether it has P@1 .99 there."""

    name: str
    topk: TopK
    key: str
    reaches: bool = True


def make_ours(head: Head) -> Asked:
    """Our head, as a user has it."""
    return Asked(OURS, lambda rows, k: head.topk(rows, k).ids, head.manifest.digest or "")


def tune_peers(dense: Dense, fit: Contexts, truth: Truth, threads: int) -> Iterator[Asked | str]:
    """Each peer, or a sentence on why it cannot be had. truth: of WikiText's test text."""
    rows = np.random.default_rng(0).permutation(len(truth.contexts))[:TUNED_ROWS]
    for name, kind, build, settings in PEERS:
        peer = CONTENDERS[kind](build, threads)
        try:
            peer.fit(dense, fit.contexts)
        except ImportError as error:
            yield f"{name}: not measured, {error}"
            continue
        yield tune_peer(name, peer, settings, truth.contexts[rows], truth.ids[rows], fit.sha256)


def tune_peer(
    name: str, peer: Contender, settings: tuple[Options, ...], contexts: FloatArray, true: IdArray, fit: str
) -> Asked:
    """The peer at its first setting that finds enough of the best classes [n, m] of contexts [n, d], or at its last."""
    for setting in settings:
        peer.use(setting)
        precision = compute_precision(ask_rows(peer.topk, contexts, 1), true, 1)
        if precision >= TUNED_P1:
            break
    text = ", ".join(f"{option} {value}" for option, value in setting.items())
    return Asked(f"{name}, {text}", peer.topk, f"{fit}{peer.build}{setting}{peer.revision}", precision >= TUNED_P1)


def ask_rows(topk: TopK, contexts: FloatArray, k: int) -> IdArray:
    """Ids [n, k] of contexts [n, d], asked a few rows at a time."""
    starts = range(0, len(contexts), ASKED_ROWS)
    return np.concatenate([topk(contexts[start : start + ASKED_ROWS], k) for start in starts])
