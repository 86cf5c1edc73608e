"""Making a bundle as the arguments of `shortlist export` ask for it, and what its other makers share."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from rich.console import Console
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.items.records import find_position, has_cosines

from shortlist_exporter.capture.labels import read_labels
from shortlist_exporter.core.types import Progress
from shortlist_exporter.export.estimate import estimate_export
from shortlist_exporter.export.like import (
    check_taken,
    extend_request,
    find_lost_finishing,
    load_like_layer,
    make_like_request,
)
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.class_lists import load_set, load_texts
from shortlist_exporter.inputs.sampled import complete_contexts, normalize_contexts, normalize_layer
from shortlist_exporter.inputs.sources import Contexts, Dense, load_contexts, load_dense
from shortlist_exporter.methods.base import TrainedMethod
from shortlist_exporter.methods.registry import (
    DEFAULT_METHOD,
    choose_device,
    find_method,
    refuse_training_options,
)

from .progress import progress_bar
from .summary import make_summary


def make(args: argparse.Namespace) -> int:
    """Export a bundle and print its quality; returns 0."""
    model = None if args.like is None else Bundle(args.like)
    like = None if model is None else make_model_request(args, model)
    request = make_request(args, like)
    with progress_bar("reading") as report:
        dense, contexts = load_inputs(args, model, request, report)
        request = add_labels(args, request, dense)
        if like is not None:
            check_taken(like, request, args.like, dense)
        estimate = estimate_export(dense, contexts, request)
    print_note(f"{dense.classes:,} classes x {dense.dim}, {len(contexts.contexts):,} contexts: {estimate}")
    if args.contexts is None and dense.classes < dense.dim:
        shape = f"{dense.classes:,} rows of {dense.dim:,} numbers"
        print_note(
            f"note: the weight has {shape}, and each row is a class: give the transpose if it is a kernel [d, V]"
        )
    lost = None if model is None else find_lost_finishing(model, dense)
    if lost is not None:
        print_note(f"note: {lost}")
    with progress_bar("exporting") as report:
        manifest = export(dense, contexts, args.out, request, report)
    print_notes(manifest)
    Console(file=sys.stdout).print(make_summary(manifest, args.out))
    return 0


def print_notes(manifest: Manifest) -> None:
    """Print to stderr what an export found worth saying of its bundle."""
    for note in manifest.provenance.get("notes", []):
        print_note(f"note: {note}")


def print_note(text: str) -> None:
    """Print a line to stderr as it is."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def make_model_request(args: argparse.Namespace, model: Bundle) -> Request:
    """How the bundle `model` was asked for, with the changes of items that its layer holds, if that is taken."""
    return replace(make_like_request(model, args.head), item_position=find_held_changes(args, model))


def make_request(args: argparse.Namespace, like: Request | None) -> Request:
    """What the arguments ask for, on top of `like`, how the bundle of --like was asked for; raises BadInput."""
    method = args.method or (DEFAULT_METHOD if like is None else like.method)
    options = dict(parse_option(option) for option in args.options) | choose_device(method, args.device)
    if args.head is not None:
        refuse_training_options(method, options)
    promise = {k: share for k, share in ((1, args.min_p1), (5, args.min_p5), *args.min_pk) if share is not None}
    request = replace(make_bundle_request(args), options=options, promise=promise, head=args.head)
    request = replace(request, item_position=args.item_position, cosine=args.cosine)
    if like is None:
        return replace(request, method=method)
    if args.method is not None:
        raise BadInput("--like takes the method of that bundle: leave --method out")
    return extend_request(like, request if args.seed is not None else replace(request, seed=like.seed))


def find_held_changes(args: argparse.Namespace, model: Bundle) -> int:
    """Up to which change of the model's items the layer of its version `model` holds them; 0 of other layers."""
    is_own = args.weights is None and args.out.parent.name == model.manifest.name
    return find_position(model.manifest) if is_own else 0


def make_bundle_request(args: argparse.Namespace) -> Request:
    """A request with the arguments of `configure_bundle`, but without labels of a tokenizer."""
    names = None if args.names is None else Names.make(load_texts(args.names))
    return Request(
        labels=None if args.labels is None else load_texts(args.labels),
        names=names,
        sets=dict(load_set(text, names) for text in args.set_files),
        keep_dense=not args.no_dense,
        fallback=not args.no_fallback,
        certificate=not args.no_certificate,
        max_k=args.max_k,
        threads=args.threads,
        seed=args.seed or 0,
        report=not args.no_report,
        at=args.at,
    )


def load_inputs(
    args: argparse.Namespace, model: Bundle | None, request: Request, report: Progress
) -> tuple[Dense, Contexts]:
    """The layer and contexts that the arguments name, of length 1 where they ask for it; few or none are sampled."""
    if args.contexts is None and isinstance(find_method(request.method), TrainedMethod):
        raise BadInput(f"method {request.method} is trained on contexts: give --contexts")
    dense = load_weights(args, model)
    contexts = None if args.contexts is None else load_contexts(args.contexts)
    if request.cosine:
        dense, contexts = normalize_pair(args, model, dense, contexts)
    return dense, complete_contexts(dense, contexts, request.seed, report)


def normalize_pair(
    args: argparse.Namespace, model: Bundle | None, dense: Dense, contexts: Contexts | None
) -> tuple[Dense, Contexts | None]:
    """As `normalize_layer`; a layer that was taken from a bundle of cosines stays as it is, to the bit."""
    if model is None or args.weights is not None or not has_cosines(model.manifest):
        return normalize_layer(dense, contexts)
    return dense, contexts and normalize_contexts(contexts)


def load_layer(args: argparse.Namespace) -> tuple[Dense, Contexts]:
    """The layer and the contexts that the arguments of `configure_layer` name."""
    return load_weights(args), load_contexts(args.contexts)


def load_weights(args: argparse.Namespace, model: Bundle | None = None) -> Dense:
    """The layer that the arguments of `configure_layer` name; without weights that of `model`. Raises BadInput."""
    if args.weights is not None:
        return load_dense(args.weights, args.bias, args.tensor, args.bias_tensor)
    if model is None:
        raise BadInput("there is no layer: give --weights, or --like for that of a bundle")
    if args.bias or args.tensor or args.bias_tensor:
        raise BadInput("--bias, --tensor and --bias-tensor are of --weights: give these, too, or leave them out")
    return load_like_layer(model)


def add_labels(args: argparse.Namespace, request: Request, dense: Dense) -> Request:
    """The request with the labels of a tokenizer, where one was named."""
    return request if args.labels_from is None else replace(request, labels=read_labels(args.labels_from, dense))


def parse_option(option: str) -> tuple[str, str]:
    """Split `name=value`; raises BadInput."""
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise BadInput(f"--set {option} is not NAME=VALUE, as in --set basis=context")
    return name, value
