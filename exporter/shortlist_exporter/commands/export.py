r"""Turn a weight matrix and a sample of context vectors into a bundle.

Nine tenths of the contexts (whole documents, where the file says which) fit the head; the rest measure it.
The version folder appears only when everything was checked, and is never overwritten.

  shortlist export --weights head.safetensors --contexts contexts.safetensors \
      --method svd --set basis=context --out repo/lm/1 --min-p1 0.99
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from shortlist.bundle.manifest import Manifest, Quality, TargetQuality
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.cli.arguments import parse_depths, parse_natural_int, parse_positive_int, parse_share
from shortlist.errors import BadInput

from shortlist_exporter.capture.labels import read_labels
from shortlist_exporter.export.estimate import estimate_export
from shortlist_exporter.export.like import load_like_layer, make_like_request
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.class_lists import load_set, load_texts
from shortlist_exporter.inputs.sources import Contexts, Dense, load_contexts, load_dense
from shortlist_exporter.methods.registry import METHODS

from .progress import progress_bar

WEIGHTS_HELP = (
    "the layer: safetensors (weight [V, d], bias [V]), npy, torch state dict (.pt .pth .bin), ONNX or GGUF model, "
    "or a Hugging Face folder"
)


def configure(parser: argparse.ArgumentParser) -> None:
    configure_layer(parser, weights_required=False)
    configure_method(parser)
    configure_bundle(parser)


def configure_layer(parser: argparse.ArgumentParser, *, weights_required: bool = True) -> None:
    """Add the arguments of the layer, the contexts, and the bundle's folder."""
    add = parser.add_argument
    add("--weights", type=Path, required=weights_required, metavar="FILE_OR_FOLDER", help=WEIGHTS_HELP)
    add("--tensor", metavar="NAME", help="the weight's name in that file (default: the output layer's)")
    add("--bias-tensor", metavar="NAME", help="the bias's name (default: the one beside the weight, if any)")
    add("--bias", type=Path, metavar="FILE", help="npy or safetensors of the bias [V], from a file of its own")
    add("--contexts", type=Path, required=True, metavar="FILE", help="contexts [n, d], safetensors or npy")
    add("--out", type=Path, required=True, metavar="REPO/NAME/VERSION", help="where the bundle goes; must not exist")


def configure_method(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--method", choices=list(METHODS), help="how the head is made (default: svd)")
    add(
        "--like",
        type=Path,
        metavar="REPO/NAME/VERSION",
        help="make it as that bundle was made: method, options, labels and, without --weights, its layer",
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
    add("--device", metavar="cpu|cuda:N", help="where heads that are trained are trained (default: cpu)")
    add("--head", type=Path, metavar="FILE", help="a head that was trained elsewhere: safetensors, torch state dict")


def configure_bundle(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of what else the bundle holds."""
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
        help="a named set of classes, repeatable: ids, or names where there are --names; a JSON list, or one a line",
    )
    add(
        "--at",
        type=parse_depths,
        default=(),
        metavar="K,K,...",
        help="also measure P@k of requests for these k, as 1,5,20,100",
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
        help="threads of each session while measuring (default: all granted)",
    )
    add("--seed", type=parse_natural_int, default=0, help="random seed (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Export a bundle and print its quality; returns 0."""
    model = None if args.like is None else Bundle(args.like)
    request = make_request(args, model)
    with progress_bar("reading"):
        dense, contexts = load_layer(args, model)
        request = add_labels(args, request, dense)
        estimate = estimate_export(dense, contexts, request)
    print_note(f"{dense.classes:,} classes x {dense.dim}, {len(contexts.contexts):,} contexts: {estimate}")
    with progress_bar("exporting") as report:
        manifest = export(dense, contexts, args.out, request, report)
    for note in manifest.provenance.get("notes", []):
        print_note(f"note: {note}")
    Console(file=sys.stdout).print(make_summary(manifest, args.out))
    return 0


def print_note(text: str) -> None:
    """Print a line to stderr as it is."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def make_request(args: argparse.Namespace, model: Bundle | None) -> Request:
    """What the arguments ask for, on top of how the bundle `model` was asked for; raises BadInput."""
    options = dict(parse_option(option) for option in args.options) | ({"device": args.device} if args.device else {})
    promise = {k: share for k, share in ((1, args.min_p1), (5, args.min_p5)) if share is not None}
    request = replace(make_bundle_request(args), options=options, promise=promise, head=args.head)
    if model is None:
        return replace(request, method=args.method or "svd")
    if args.method is not None:
        raise BadInput("--like takes the method of that bundle: leave --method out")
    like = make_like_request(model)
    return replace(
        like,
        options=like.options | request.options,
        promise=like.promise | request.promise,
        labels=request.labels or like.labels,
        names=request.names or like.names,
        sets=like.sets | request.sets,
        keep_dense=like.keep_dense and request.keep_dense,
        fallback=like.fallback and request.fallback,
        certificate=like.certificate and request.certificate,
        max_k=request.max_k or like.max_k,
        at=request.at or like.at,
        seed=request.seed or like.seed,
        threads=request.threads,
        report=request.report,
        head=request.head,
    )


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
        seed=args.seed,
        report=not args.no_report,
        at=args.at,
    )


def load_layer(args: argparse.Namespace, model: Bundle | None = None) -> tuple[Dense, Contexts]:
    """The layer and the contexts that the arguments of `configure_layer` name; without weights the layer of `model`."""
    if args.weights is None:
        if model is None:
            raise BadInput("there is no layer: give --weights, or --like for that of a bundle")
        return load_like_layer(model), load_contexts(args.contexts)
    return load_dense(args.weights, args.bias, args.tensor, args.bias_tensor), load_contexts(args.contexts)


def add_labels(args: argparse.Namespace, request: Request, dense: Dense) -> Request:
    """The request with the labels of a tokenizer, where one was named."""
    return request if args.labels_from is None else replace(request, labels=read_labels(args.labels_from, dense))


def parse_option(option: str) -> tuple[str, str]:
    """Split `name=value`; raises BadInput."""
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise BadInput(f"--set {option} is not NAME=VALUE, as in --set basis=context")
    return name, value


def make_summary(manifest: Manifest, out: Path) -> Table:
    """A table of what was exported and the quality that it promises."""
    quality = manifest.quality
    assert quality is not None
    table = Table(title=f"{out}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}", show_header=False)
    crossover = manifest.dense_crossover
    precision = f"{quality.p_at_1:.4f} / {quality.p_at_5:.4f} / {quality.p_at_10:.4f}"
    for name, figure in {
        "settings": list_values(manifest.settings.model_dump()),
        "made with": list_values(manifest.fit),
        "P@1 / P@5 / P@10": f"{precision} on {quality.rows:,} held-out contexts",
        **{f"P@{k}, asked for {k}": f"{share:.4f}" for k, share in quality.p_at.items()},
        "log-prob error": describe_errors(quality, manifest.normalizer),
        "multiply-adds": f"1/{1 / quality.cost_macs:.1f} of dense",
        "weight bytes read": f"1/{1 / quality.cost_bytes:.1f} of dense",
        "exact answers": describe_exact(manifest),
        "answered dense": f"from {crossover} rows a request" if crossover else "never by batch size",
    }.items():
        table.add_row(name, figure)
    for name, figure in describe_targets(quality.targets):
        table.add_row(name, figure)
    return table


def describe_errors(quality: Quality, normalizer: str) -> str:
    """Errors of log-probabilities, with and without the rows whose best class was missed."""
    text = f"mean {quality.logprob_error_mean:.2g}, p99 {quality.logprob_error_p99:.2g} nats ({normalizer} normaliser)"
    if quality.logprob_error_hits_mean is None:
        return text
    hits = f"mean {quality.logprob_error_hits_mean:.2g}, p99 {quality.logprob_error_hits_p99:.2g}"
    return f"{text}; where the best class was found {hits}"


def list_values(values: dict[str, Any]) -> str:
    """Names and values as `name=value, ...`; `none` where there are none."""
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "none"


def describe_exact(manifest: Manifest) -> str:
    """Describe how exact requests are answered."""
    certificate = manifest.certificate
    if certificate is None:
        return "by dense" if "dense" in manifest.graphs or manifest.plan == "full" else "none"
    crossover = certificate.dense_crossover
    until = f", by dense from {crossover} rows" if crossover else ""
    within = f"log-probs within {certificate.logprob_bound:.2g} nats"
    return f"proved, {within}, {certificate.rescored:.0f} classes rescored{until}"


def describe_targets(targets: TargetQuality | None) -> Iterator[tuple[str, str]]:
    """Rows of the table with figures on targets, of the head and of dense."""
    if targets is None:
        return
    figures_by_name = {"head": targets.head, "dense": targets.dense, "dense, retrained": targets.retrained}
    for name, figures in figures_by_name.items():
        if figures is not None:
            best = f"{figures.top_1:.4f} / {figures.top_5:.4f} / {figures.top_10:.4f}"
            rest = f", {figures.impossible:.2%} with probability 0" if figures.impossible else ""
            yield f"{name}: target in top 1 / 5 / 10", f"{best}, perplexity {figures.perplexity:.2f}{rest}"
