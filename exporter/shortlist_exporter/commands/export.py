"""Turn a weight matrix and a sample of context vectors into a bundle.

Nine tenths of the contexts (whole documents, where the file says which) fit the head; the rest measure it.
Without contexts, or with fewer than twice d, some are sampled in the directions of the layer's rows, and the report
and the manifest say so. The version folder appears only when everything was checked, and is never overwritten.

  shortlist export --weights head.safetensors --contexts contexts.safetensors --out repo/lm/1 --min-p1 0.99
"""

from __future__ import annotations

import argparse
from pathlib import Path

from shortlist.cli.arguments import parse_depths, parse_natural_int, parse_positive_int, parse_precision, parse_share
from shortlist.core.extras import require

from .threads import limit_torch

# As in `methods.registry`, which imports torch: that takes seconds, for which nobody waits who asks for help.
METHOD_NAMES = ("full", "svd", "l2s", "cascade", "grouped", "ds", "ds-svd", "adaptive", "dsoftmax", "mixtape")
DEFAULT_METHOD = "grouped"
WEIGHTS_HELP = (
    "the layer: safetensors (weight [V, d], bias [V]), npy, torch state dict (.pt .pth .bin), ONNX or GGUF model, "
    "or a Hugging Face folder"
)
CONTEXTS_HELP = "contexts [n, d], safetensors or npy"


def configure(parser: argparse.ArgumentParser) -> None:
    require("fcntl")  # heads are not made on Windows, whatever the arguments
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
    add("--method", choices=METHOD_NAMES, help=f"how the head is made (default: {DEFAULT_METHOD})")
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
    return int(require("shortlist_exporter.commands.making").make(args))
