"""A bundle as the model for the next one: its layer, and how it was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.bundle.class_sets import SETS_FOLDER, list_set_names, make_path, read_set
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.core.results import NO_CLASS
from shortlist.errors import BadInput
from shortlist.items.records import has_cosines

from shortlist_exporter.inputs.formats.base import Array
from shortlist_exporter.inputs.formats.onnx_graph import open_graph
from shortlist_exporter.inputs.sources import Dense

from .request import Request

RECORD = "request"  # in a manifest's provenance
HEAD_GIVEN = "head_given"  # in that record, where the head was trained elsewhere
RECORDED_FIELDS = ("options", "promise", "fallback", "certificate", "keep_dense", "max_k", "at")


def record_request(request: Request) -> dict[str, Any]:
    """What the manifest keeps of a request, by which `make_like_request` makes it again."""
    given = {} if request.head is None else {HEAD_GIVEN: True}
    return {name: getattr(request, name) for name in RECORDED_FIELDS} | given


def make_like_request(bundle: Bundle, head: Path | None = None) -> Request:
    """The request that made a bundle, with its method, options, seed and texts.

    Raises BadInput for an old bundle, and where its head was trained elsewhere and no `head` is given in its place.
    """
    manifest = bundle.manifest
    record = manifest.provenance.get(RECORD)
    if not isinstance(record, dict):
        raise BadInput(f"{bundle.folder} does not say how it was asked for: give --method and --set in place of --like")
    if record.get(HEAD_GIVEN) and head is None:
        raise BadInput(f"the head of {bundle.folder} was trained elsewhere: give --head, or --method to train another")
    fields = {name: record[name] for name in RECORDED_FIELDS if name in record}
    fields["promise"] = {int(k): share for k, share in fields.get("promise", {}).items()}
    fields["at"] = tuple(fields.get("at", ()))
    labels, names = bundle.labels(), bundle.names()
    folder = bundle.folder / SETS_FOLDER
    sets = {name: read_set(make_path(folder, name)) for name in list_set_names(folder)}
    fields |= {"labels": labels, "names": names, "sets": sets, "cosine": has_cosines(manifest)}
    return Request(method=manifest.method, seed=manifest.seed, **fields)


def extend_request(like: Request, request: Request) -> Request:
    """The request `like` of a bundle with what `request` asks for beside it; threads, report and head are its own."""
    if request.names is not None:
        like = rename_classes(like, request.names)
    return replace(
        like,
        options=like.options | request.options,
        promise=like.promise | request.promise,
        labels=request.labels or like.labels,
        names=like.names,
        sets=like.sets | request.sets,
        keep_dense=like.keep_dense and request.keep_dense,
        fallback=like.fallback and request.fallback,
        certificate=like.certificate and request.certificate,
        max_k=request.max_k or like.max_k,
        at=request.at or like.at,
        seed=request.seed,
        threads=request.threads,
        report=request.report,
        head=request.head,
        item_position=request.item_position or like.item_position,
        cosine=request.cosine or like.cosine,
    )


def rename_classes(request: Request, names: Names) -> Request:
    """The request for a layer whose classes have these names: labels and sets follow the names that it had, if any.

    A class with a name that is new is in no set, and gets its name as its label.
    """
    if request.names is None:
        return replace(request, names=names)
    texts = [str(text) for text in names.read(np.arange(names.classes.size))]
    old, labels = request.names.find(texts), request.labels
    if labels is not None:
        labels = [text if i == NO_CLASS else labels[i] for i, text in zip(old.tolist(), texts, strict=True)]
    sets = {name: np.flatnonzero(np.isin(old, ids)) for name, ids in request.sets.items()}
    return replace(request, names=names, labels=labels, sets=sets)


def check_taken(like: Request, request: Request, folder: Path, dense: Dense) -> None:
    """Raise BadInput where what `request` took from `like`, that of the bundle at `folder`, does not fit the layer."""
    real = dense.real_classes
    if request.max_k is not None and request.max_k == like.max_k and request.max_k > real:
        raise BadInput(f"max_k is {like.max_k}, as in {folder}, but the layer has {real} classes: give --max-k")
    most = min(request.max_k or real, real)
    if request.at == like.at and max(like.at, default=0) > most:
        raise BadInput(f"P@{max(like.at)} is measured, as in {folder}, but k goes from 1 to {most}: give --at")
    promised = [k for k, share in like.promise.items() if k > most and share == request.promise.get(k)]
    if promised:
        raise BadInput(
            f"P@{promised[0]} is promised, as in {folder}, but k goes from 1 to {most}: "
            "give --method and --set in place of --like"
        )
    check_taken_texts(like, request, folder, dense)


def check_taken_texts(like: Request, request: Request, folder: Path, dense: Dense) -> None:
    """As `check_taken`, of labels, names and sets."""
    names = None if request.names is None else request.names.classes.size
    if request.names is like.names and names not in (None, dense.classes):
        raise BadInput(f"there are {names} names in {folder} but {dense.classes} classes in the layer: give --names")
    labels, has_fitting_names = request.labels, names in (None, dense.classes)
    if labels is not None and labels is like.labels and has_fitting_names and len(labels) != dense.classes:
        raise BadInput(
            f"there are {len(labels)} labels in {folder} but {dense.classes} classes in the layer: give --labels"
        )
    for name, ids in like.sets.items():
        if ids is request.sets[name] and ids.max(initial=0) >= dense.classes:
            raise BadInput(
                f"set {name} of {folder} holds id {ids.max()} but classes go from 0 to {dense.classes - 1}: "
                f"give --set-file {name}=FILE"
            )


def find_lost_finishing(bundle: Bundle, dense: Dense) -> str | None:
    """A sentence where a layer in place of a bundle's lacks the bias, logit scale or soft-cap that that one has."""
    manifest = bundle.manifest
    has_bias = bundle.has_graph("dense") and open_graph(bundle.graph("dense").path).is_constant("bias")
    lost = {
        "a bias": has_bias and dense.bias is None,
        f"logit scale {manifest.logit_scale:g}": manifest.logit_scale != 1 and dense.logit_scale == 1,
        f"soft-cap {manifest.soft_cap or 0:g}": manifest.soft_cap is not None and dense.soft_cap is None,
    }
    names = ", ".join(name for name, is_lost in lost.items() if is_lost)
    if not names:
        return None
    return (
        f"the layer of {bundle.folder} has {names}, and the one given has not: unless that is meant, give --bias, and "
        "logit_scale and soft_cap in the metadata of safetensors"
    )


def load_like_layer(bundle: Bundle) -> Dense:
    """The dense layer that a bundle stands for; raises BadInput where it was exported without."""
    manifest = bundle.manifest
    if not bundle.has_graph("dense"):
        raise BadInput(f"{bundle.folder} was exported with --no-dense: export it again, and give --weights")
    arrays = read_dense_weights(bundle.graph("dense").path)
    return Dense(
        arrays["columns"].T.copy(),
        arrays.get("bias"),
        manifest.logit_scale,
        manifest.soft_cap,
        np.flatnonzero(np.isneginf(arrays.get("padding", np.zeros(0)))),
        manifest.dtype,
        str(manifest.provenance.get("weights_sha256", "")),
    )


def read_dense_weights(path: Path) -> dict[str, Array]:
    """The weights that `write_dense` wrote, by name."""
    graph = open_graph(path)
    return {name: graph.read_value(name).numpy() for name in ("columns", "bias", "padding") if graph.is_constant(name)}
