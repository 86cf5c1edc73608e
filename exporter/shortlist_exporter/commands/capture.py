r"""Take context vectors and the output layer out of a causal language model.

The states after the final norm, for every token of the texts, with the next token as target. Streams to disk:
a killed run, started again with the same arguments, goes on where it was.

  shortlist capture --model folder-or-file.gguf --text book.txt \
      --out contexts.safetensors --weights-out head.safetensors --labels-out labels.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from shortlist.cli.arguments import parse_positive_int
from shortlist.errors import BadInput
from shortlist.runtime.threads import count_available_threads

from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.run import capture, read_texts, write_head, write_labels

from .progress import progress_bar

OUTPUT_SUFFIX = ".safetensors"


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR_OR_GGUF", help="Hugging Face folder, or GGUF file")
    add("--text", type=Path, required=True, nargs="+", metavar="FILE", help="UTF-8 text, one or more files")
    add("--out", type=Path, required=True, metavar="FILE", help="contexts, targets and documents go here (safetensors)")
    add("--weights-out", type=Path, metavar="FILE", help="the output layer goes here (safetensors)")
    add("--labels-out", type=Path, metavar="FILE", help="the V token strings go here (JSON)")
    add(
        "--tokens", type=parse_positive_int, metavar="N", help="stop after about N tokens, whole windows (default: all)"
    )
    add(
        "--window", type=parse_positive_int, default=512, metavar="TOKENS", help="context length (default: %(default)s)"
    )
    add(
        "--batch",
        type=parse_positive_int,
        default=4,
        metavar="WINDOWS",
        help="windows at a time (default: %(default)s)",
    )
    add("--threads", type=parse_positive_int, metavar="N", help="threads of torch (default: all granted)")
    add(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="of the stored contexts (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Capture the contexts and print what was written; returns 0."""
    check_outputs(args)
    read_texts(args.text)  # a wrong path fails before the model is loaded, which takes long
    torch.set_num_threads(args.threads or count_available_threads())
    with progress_bar(f"loading {args.model.name}") as report:
        model = load_model(args.model)
        if args.weights_out:
            write_head(args.weights_out, model.dense, args.model.name)
        if args.labels_out:
            write_labels(args.labels_out, model.make_labels())
        rows = capture(
            model,
            args.text,
            args.out,
            rows=args.tokens,
            window=args.window,
            batch=args.batch,
            dtype=args.dtype,
            progress=report,
            notice=lambda sentence: print(f"shortlist capture: {sentence}", file=sys.stderr),  # noqa: T201
        )
    print(f"{args.out}: {rows:,} contexts of d = {model.dense.dim}, V = {model.dense.classes:,}")  # noqa: T201
    return 0


def check_outputs(args: argparse.Namespace) -> None:
    """Raise BadInput where an output would replace an input or another output, or its name says another format."""
    used_paths = {path.resolve() for path in (args.model, *args.text)}
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
