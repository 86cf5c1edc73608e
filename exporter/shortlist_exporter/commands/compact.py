"""Fold the changes of a model's items into a new version, beside those that are there.

  shortlist compact repo/shop --item-changes changes

The newest version is exported again, as it was, with the items that were added, replaced and removed since; the server
may go on meanwhile. The new version says up to which change it holds them, so that none is lost or made twice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from shortlist.cli.arguments import add_threads

from shortlist_exporter.export.compact import compact
from shortlist_exporter.inputs.sources import load_contexts

from .making import print_notes
from .progress import progress_bar
from .threads import limit_torch


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, help="folder <repository>/<name>")
    add("--item-changes", type=Path, required=True, metavar="FOLDER", help="where the server keeps the changes")
    add("--contexts", type=Path, metavar="FILE", help="contexts [n, d] to fit on (default: those in the bundle)")
    add("--renumber", action="store_true", help="drop removed items, and give those after them lower ids")
    add_threads(parser, "torch and sessions")


def run(args: argparse.Namespace) -> int:
    """Export the next version and say what it holds; returns 0."""
    limit_torch(args.threads)
    contexts = None if args.contexts is None else load_contexts(args.contexts)
    if contexts is None:
        Console(stderr=True, soft_wrap=True).print(f"note: fitted on the rows that {args.model} carries", markup=False)
    with progress_bar(f"compacting {args.model}") as report:
        manifest = compact(
            args.model.resolve(),
            args.item_changes,
            contexts,
            renumber=args.renumber,
            threads=args.threads,
            progress=report,
        )
    print_notes(manifest)
    position, quality = manifest.provenance["item_position"], manifest.quality
    precision = "" if quality is None else f", P@1 {quality.p_at_1:.4f}"
    Console(soft_wrap=True).print(
        f"{manifest.name}/{manifest.version}: {manifest.classes:,} classes, changes up to {position:,}{precision}",
        markup=False,
    )
    return 0
