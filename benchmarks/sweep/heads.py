"""The heads of the benchmarks: exported once below the cache, then opened by the service's runtime."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray, TopK
from shortlist.errors import ShortlistError
from shortlist.evaluation.checked_head import load_and_check, open_bundle
from shortlist.evaluation.statistics import compute_precision
from shortlist.head import Head
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.contenders.ours import REVISIONS
from benchmarks.datasets.registry import DataSet

P10_ROWS = 4096  # of which P@10 is measured

PROMISED_HEAD = "grouped"  # the head whose figures the JSON line gives


@dataclass(frozen=True)
class Precision:
    """P@k on the test contexts, and the share of rows that the dense head answered."""

    p1: float
    p5: float
    p10: float
    dense_share: float


def list_requests(classes: int, dim: int) -> dict[str, Request]:
    """What to export, by the name of the head.

    SVD-softmax as published, in two sizes; the same in the basis of contexts, in float32 and int8; cascade; groups.
    """
    options = {"width": str(dim // 4), "full_view": str(classes // 10)}
    return {
        "svd": Request(method="svd", fallback=False, certificate=False, threads=1),
        "svd-wide": Request(method="svd", options=options, fallback=False, certificate=False, threads=1),
        "svd-context-fp32": Request(
            method="svd", options={"basis": "context", "preview": "fp32"}, certificate=False, threads=1
        ),
        "svd-context": Request(method="svd", options={"basis": "context"}, certificate=False, threads=1),
        "cascade": Request(method="cascade", options={"candidates": str(classes // 192)}, certificate=False, threads=1),
        PROMISED_HEAD: Request(method="grouped", threads=1),
    }


def open_heads(data: DataSet, repository: Path, threads: int, names: Sequence[str] = ()) -> dict[str, Head]:
    """All heads, or those in `names`, by name; one is exported where `repository` has no bundle of these inputs."""
    return {
        name: open_head(name, request, data.dense, data.fit, repository, threads)
        for name, request in list_requests(data.dense.classes, data.dense.dim).items()
        if not names or name in names
    }


def open_head(name: str, request: Request, dense: Dense, fit: Contexts, repository: Path, threads: int) -> Head:
    """The head of this request, fitted on `fit`; exported where `repository` has no bundle of these inputs."""
    out = repository / f"{name}-{hash_request(request)}" / "1"
    head = reuse_head(out, dense, fit, threads)
    if head is not None:
        return head
    shutil.rmtree(out, ignore_errors=True)
    with progress_bar(f"exporting {name}") as report:
        export(dense, fit, out, request, report)
    return Head(Bundle(out, verify=False), "cpu", threads)


def hash_request(request: Request) -> str:
    """Eight hexadecimal digits of a hash of the request, its method's revision and the format of bundles."""
    return hashlib.sha256(f"{FORMAT_VERSION}{request}{REVISIONS.get(request.method, '')}".encode()).hexdigest()[:8]


def reuse_head(out: Path, dense: Dense, fit: Contexts, threads: int) -> Head | None:
    """The head at `out`, or None unless it was made from this data and passes its canary, the check at load."""
    try:
        head = load_and_check(open_bundle(out), "cpu", threads).head
    except ShortlistError:
        return None
    provenance = head.manifest.provenance
    same = (provenance["weights_sha256"], provenance["contexts_sha256"]) == (dense.sha256, fit.sha256)
    return head if same else None


def measure_precision(head: Head, data: DataSet, batch: int = 8) -> Precision:
    """Precision of `Head.topk` in small requests, as a decoder sends them.

    P@1 and P@5 of the k that is timed, since a larger one may be searched more widely; P@10 of the first rows alone.
    """
    ids, dense_share = collect_ids(head, data.test.contexts, 5, batch)
    deep_ids, _ = collect_ids(head, data.test.contexts[:P10_ROWS], 10, batch)
    p1, p5 = (compute_precision(ids, data.test.best, k) for k in (1, 5))
    return Precision(p1, p5, compute_precision(deep_ids, data.test.best.first_rows(P10_ROWS), 10), dense_share)


def collect_ids(head: Head, contexts: FloatArray, k: int, batch: int) -> tuple[IdArray, float]:
    """The head's ids [n, k], and the share of rows for which it scored every class."""
    top = TopK.concat([head.topk(contexts[start : start + batch], k) for start in range(0, len(contexts), batch)])
    return top.ids, float((top.scored == head.manifest.classes).mean())
