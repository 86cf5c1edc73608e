r"""Take context vectors and the output layer out of a causal language model.

The states after the final norm, for every token of the texts, with the next token as target; without texts, of texts
that the model makes up itself. Streams to disk: a killed run, started again with the same arguments, goes on where it
was.

  shortlist capture --model folder-or-file.gguf --text book.txt code.txt=2 \
      --out contexts.safetensors --weights-out head.safetensors --labels-out labels.json
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import torch
from shortlist.cli.arguments import add_threads, parse_natural_int, parse_positive_int
from shortlist.errors import BadInput
from shortlist.runtime.threads import count_available_threads

from shortlist_exporter.capture.files import write_head, write_labels
from shortlist_exporter.capture.language_model import LanguageModel, load_model
from shortlist_exporter.capture.run import BATCH_WINDOWS, WINDOW, capture
from shortlist_exporter.capture.sampling import SAMPLED_ROWS, SAMPLED_WINDOW, SAMPLED_WINDOWS, capture_samples
from shortlist_exporter.capture.texts import Text, list_texts, read_texts
from shortlist_exporter.core.types import Progress

from .progress import progress_bar

OUTPUT_SUFFIX = ".safetensors"


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR_OR_GGUF", help="Hugging Face folder, or GGUF file")
    add(
        "--text",
        type=parse_text,
        action="extend",
        nargs="+",
        metavar="FILE[=WEIGHT]",
        help="UTF-8 texts, or folders of .txt files, which weigh 1 each; those with weights give contexts in "
        "proportion (default: texts that the model makes up)",
    )
    add("--out", type=Path, required=True, metavar="FILE", help="contexts, targets and documents go here (safetensors)")
    add("--weights-out", type=Path, metavar="FILE", help="the output layer goes here (safetensors)")
    add("--labels-out", type=Path, metavar="FILE", help="the V token strings go here (JSON)")
    add(
        "--tokens",
        type=parse_positive_int,
        metavar="N",
        help=f"about N tokens, whole windows (default: all there are; {SAMPLED_ROWS} without --text)",
    )
    add(
        "--window",
        type=parse_positive_int,
        metavar="TOKENS",
        help=f"context length (default: {WINDOW}; {SAMPLED_WINDOW} without --text)",
    )
    add(
        "--batch",
        type=parse_positive_int,
        metavar="WINDOWS",
        help=f"windows at a time (default: {BATCH_WINDOWS}; {SAMPLED_WINDOWS} without --text)",
    )
    add_threads(parser, "torch")
    add(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="of the stored contexts (default: %(default)s)",
    )
    add(
        "--seed",
        type=parse_natural_int,
        metavar="SEED",
        help="random seed of the texts made up without --text (default: 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Capture the contexts and print what was written; returns 0."""
    check_outputs(args)
    if args.text:
        read_texts(list_texts(args.text))  # a wrong path fails before the model is loaded, which takes long
    torch.set_num_threads(args.threads or count_available_threads())
    with progress_bar(f"loading {args.model.name}") as report:
        model = load_model(args.model)
        if args.weights_out:
            write_head(args.weights_out, model.dense, args.model.name)
        if args.labels_out:
            write_labels(args.labels_out, model.make_labels())
        rows = capture_any(model, args, report)
    print(f"{args.out}: {rows:,} contexts of d = {model.dense.dim}, V = {model.dense.classes:,}")  # noqa: T201
    return 0


def capture_any(model: LanguageModel, args: argparse.Namespace, progress: Progress) -> int:
    """Capture over the texts, or over texts that the model makes up; returns the number of rows."""
    given = {"rows": args.tokens, "window": args.window, "batch": args.batch, "dtype": args.dtype, "seed": args.seed}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if args.text:
        return capture(model, args.text, args.out, **options, progress=progress, notice=print_notice)
    print_notice("no --text: the model makes up the texts itself")
    return capture_samples(model, args.out, **options, progress=progress, notice=print_notice)


def print_notice(sentence: str) -> None:
    print(f"shortlist capture: {sentence}", file=sys.stderr)  # noqa: T201


def parse_text(value: str) -> Text:
    """`FILE` or `FILE=WEIGHT`; raises argparse.ArgumentTypeError. A file whose name has a `=` is that file."""
    name, separator, number = value.rpartition("=")
    if not separator or Path(value).exists():
        return Text(Path(value))
    try:
        weight = float(number)
    except ValueError:
        weight = 0.0
    if not (0 < weight < math.inf):
        raise argparse.ArgumentTypeError(f"{value!r}: the weight {number!r} is not a number over 0")
    return Text(Path(name), weight)


def check_outputs(args: argparse.Namespace) -> None:
    """Raise BadInput where an output would replace an input or another output, or its name says another format.

    Or where --seed is given with --text, of which nothing is drawn.
    """
    if args.text and args.seed is not None:
        raise BadInput("--seed is for texts that the model makes up: leave out --seed, or --text")
    used_paths = {path.resolve() for path in (args.model, *(text.path for text in args.text or []))}
    for flag, out in (("--out", args.out), ("--weights-out", args.weights_out), ("--labels-out", args.labels_out)):
        if out is None:
            continue
        if flag != "--labels-out" and out.suffix != OUTPUT_SUFFIX:
            raise BadInput(f"{flag} {out} must end in {OUTPUT_SUFFIX}, which is what is written")
        if out.resolve() in used_paths:
            raise BadInput(f"{flag} {out} is named twice: it would be replaced, so choose another file")
        if args.model.resolve() in out.resolve().parents:
            raise BadInput(f"{flag} {out} lies in the model's folder, which is left as it is: choose another folder")
        used_paths.add(out.resolve())
