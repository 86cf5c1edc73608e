"""What to export, and what is refused before any work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from shortlist.bundle.class_sets import check_set_name
from shortlist.bundle.names import Names
from shortlist.bundle.reader import parse_version_folder
from shortlist.bundle.repository import check_name
from shortlist.core.checks import require_utf8
from shortlist.core.filters import check_id_range
from shortlist.core.results import IdArray
from shortlist.errors import BadInput
from shortlist.evaluation.statistics import PRECISION_DEPTHS
from shortlist.runtime.devices import import_onnxruntime
from torch import nn

from shortlist_exporter.inputs.sources import Contexts, Dense, check_pair
from shortlist_exporter.methods.registry import DEFAULT_METHOD, TrainedMethod, find_method

SEED_LIMIT = 1 << 63  # torch takes smaller seeds only


@dataclass(frozen=True)
class Request:
    """What to export.

    promise: the least P@k, by k, on held-out contexts. keep_dense: write dense.onnx. fallback: requests of so many rows
    that dense is faster are answered by dense. certificate: write what proves exact answers, a quarter of dense's size.
    max_k: the largest k served, by default the number of classes. labels, names: of all classes, to be printed and to
    be asked by. threads: of each session while measuring. report:
    write the page about the bundle. sets: ids [m] of named sets of classes. at: k for each of which requests are
    measured by themselves. head: a head of the method that was trained elsewhere, as a module or a file of its
    `state_dict`. item_position: up to which change of the model's items the layer holds them. cosine: the rows of the
    layer and the contexts were divided by their lengths, as vectors of items that are changed later will be.
    """

    method: str = DEFAULT_METHOD
    options: dict[str, str] = field(default_factory=dict)
    promise: dict[int, float] = field(default_factory=dict)
    labels: list[str] | None = None
    names: Names | None = None
    sets: dict[str, IdArray] = field(default_factory=dict)
    keep_dense: bool = True
    fallback: bool = True
    certificate: bool = True
    max_k: int | None = None
    threads: int | None = None
    seed: int = 0
    report: bool = False
    at: tuple[int, ...] = ()
    head: Path | nn.Module | None = None
    item_position: int = 0
    cosine: bool = False

    @property
    def depths(self) -> tuple[int, ...]:
        """Each k whose P@k is measured beside `PRECISION_DEPTHS`: those of `at` and of the promise, ascending."""
        return tuple(sorted({*self.at, *(set(self.promise) - set(PRECISION_DEPTHS))}))


def limit_classes(request: Request, classes: int) -> Request:
    """The request for a layer of so many real classes: no more of them are asked for."""
    max_k = None if request.max_k is None else min(request.max_k, classes)
    most = max_k or classes
    promise = {k: share for k, share in request.promise.items() if k <= most}
    return replace(request, max_k=max_k, at=tuple(k for k in request.at if k <= most), promise=promise)


def check_request(dense: Dense, contexts: Contexts, out: Path, request: Request) -> None:
    """Raise BadInput before any work for what could not succeed."""
    import_onnxruntime()  # what the finished bundle is measured with
    parse_version_folder(require_utf8(out))
    check_name(out.parent.name)
    check_pair(dense, contexts)
    real = dense.real_classes
    if real < 1:
        raise BadInput("every row of the weight is marked as padding: there is no class to answer with")
    if request.max_k is not None and not 1 <= request.max_k <= real:
        raise BadInput(f"max_k is {request.max_k} but the layer has {real} classes: choose 1 to {real}")
    beyond = next(
        (k for k in sorted({*request.depths, *request.promise}) if not 1 <= k <= (request.max_k or real)), None
    )
    if beyond is not None:
        raise BadInput(f"P@{beyond} cannot be measured: k goes from 1 to {request.max_k or real}")
    if not 0 <= request.seed < SEED_LIMIT:
        raise BadInput(f"seed is {request.seed}: give a whole number from 0, under 2**63")
    for name, ids in request.sets.items():
        check_set_name(name)
        check_id_range(f"set {name}", ids, dense.classes)
    check_options(dense, request)


def check_options(dense: Dense, request: Request) -> None:
    """Raise BadInput where fields of the request contradict each other or the layer."""
    if request.head is not None and not isinstance(find_method(request.method), TrainedMethod):
        raise BadInput(f"method {request.method} is fitted to the dense layer: leave --head out")
    for k, share in request.promise.items():
        if not 0 < share <= 1:
            raise BadInput(f"P@{k} is to reach {share}: give a share over 0, up to 1")
    if request.method == "full" and not request.keep_dense:
        raise BadInput("--no-dense leaves nothing of method full: choose another method")
    counts = {"names": None if request.names is None else request.names.classes, "labels": request.labels}
    for what, texts in counts.items():
        if texts is not None and len(texts) != dense.classes:
            raise BadInput(f"there are {len(texts)} {what} for {dense.classes} classes: give one for each")
