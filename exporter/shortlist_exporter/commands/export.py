"""Turn a weight matrix and a sample of context vectors into a bundle.

Nine tenths of the contexts (whole documents, where the file says which) fit the head; the rest measure it.
Without contexts, or with fewer than twice d, some are sampled in the directions of the layer's rows, and the report
and the manifest say so. The version folder appears only when everything was checked, and is never overwritten.

  shortlist export --weights head.safetensors --contexts contexts.safetensors --out repo/lm/1 --min-p1 0.99
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.cli.arguments import parse_depths, parse_natural_int, parse_positive_int, parse_precision, parse_share
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
    METHODS,
    choose_device,
    find_method,
    refuse_training_options,
)

from .progress import progress_bar
from .summary import make_summary
from .threads import limit_torch

WEIGHTS_HELP = (
    "the layer: safetensors (weight [V, d], bias [V]), npy, torch state dict (.pt .pth .bin), ONNX or GGUF model, "
    "or a Hugging Face folder"
)
CONTEXTS_HELP = "contexts [n, d], safetensors or npy"


def configure(parser: argparse.ArgumentParser) -> None:
    configure_layer(parser, required=False)
    configure_method(parser)
    configure_bundle(parser, "0, or that of --like")
    parser.add_argument(
        "--item-position",
        type=parse_natural_int,
        default=0,
        metavar="N",
        help="the layer holds the changes of the model's items up to this one "
        "(default: none, or what the bundle of --like holds if its layer is taken)",
    )


def configure_layer(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the arguments of the layer, the contexts, and the bundle's folder."""
    add = parser.add_argument
    layer = WEIGHTS_HELP if required else f"{WEIGHTS_HELP} (default: that of --like)"
    sample = CONTEXTS_HELP if required else f"{CONTEXTS_HELP} (default: sampled around the layer's rows)"
    add("--weights", type=Path, required=required, metavar="FILE_OR_FOLDER", help=layer)
    add("--tensor", metavar="NAME", help="the weight's name in that file (default: the output layer's)")
    add("--bias-tensor", metavar="NAME", help="the bias's name (default: the one beside the weight, if any)")
    add("--bias", type=Path, metavar="FILE", help="npy or safetensors of the bias [V], from a file of its own")
    add("--contexts", type=Path, required=required, metavar="FILE", help=sample)
    add("--out", type=Path, required=True, metavar="REPO/NAME/VERSION", help="where the bundle goes; must not exist")


def configure_method(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--method", choices=list(METHODS), help=f"how the head is made (default: {DEFAULT_METHOD})")
    add(
        "--like",
        type=Path,
        metavar="REPO/NAME/VERSION",
        help="make it as that bundle was made: method, options, promise, seed, labels and, without --weights, its "
        "layer; options given beside it override the bundle's",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="options",
        help="an option of the method, repeatable; an unknown one lists those that there are",
    )
    add(
        "--min-p1", type=parse_share, metavar="SHARE", help="fail unless P@1 on held-out contexts reaches this (0 to 1)"
    )
    add("--min-p5", type=parse_share, metavar="SHARE", help="the same for P@5")
    add(
        "--min-pk",
        type=parse_precision,
        action="append",
        default=[],
        metavar="K=SHARE",
        help="the same for P@K, repeatable",
    )
    add("--device", metavar="cpu|cuda:N", help="device that ds and ds-svd are trained on (default: cpu)")
    add("--head", type=Path, metavar="FILE", help="a head trained elsewhere: safetensors, state dict or checkpoint")
    add("--cosine", action="store_true", help="divide rows and contexts by their lengths: scores are cosines")


def configure_bundle(parser: argparse.ArgumentParser, seed: str = "0") -> None:
    """Add the arguments of what else the bundle holds. seed: the default one, in words."""
    add = parser.add_argument
    labels = parser.add_mutually_exclusive_group()
    labels.add_argument("--labels", type=Path, metavar="FILE", help="V printable names: a JSON list, or one a line")
    labels.add_argument(
        "--labels-from", type=Path, metavar="TOKENIZER", help="the same from a tokenizer.json, its folder, or a GGUF"
    )
    add(
        "--names",
        type=Path,
        metavar="FILE",
        help="V names by which requests may ask, as item ids: a JSON list, or one a line",
    )
    add(
        "--set-file",
        action="append",
        default=[],
        metavar="NAME=FILE",
        dest="set_files",
        help="a named set of classes, repeatable: ids; names alone where there are --names; a JSON list, or one a line",
    )
    add(
        "--at",
        type=parse_depths,
        default=(),
        metavar="K,K,...",
        help="measure P@k of requests for these k, too, beside 1, 5 and 10, as 20,100",
    )
    add("--max-k", type=parse_positive_int, metavar="CLASSES", help="largest k served (default: V)")
    add(
        "--no-fallback",
        action="store_true",
        help="never answer with dense for a request's number of rows, even if faster",
    )
    add("--no-dense", action="store_true", help="leave the dense head out: smaller, but no exact answers or fall-back")
    add(
        "--no-certificate",
        action="store_true",
        help="leave out the int8 rows that prove exact answers in less time than dense: a quarter of its size",
    )
    add("--no-report", action="store_true", help="leave out report/, the page about the bundle")
    add(
        "--threads",
        type=parse_positive_int,
        metavar="N",
        help="threads of each session while measuring; torch takes no more in `export` (default: all granted)",
    )
    add("--seed", type=parse_natural_int, metavar="SEED", help=f"random seed (default: {seed})")


def run(args: argparse.Namespace) -> int:
    """Export a bundle and print its quality; returns 0."""
    limit_torch(args.threads)
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
