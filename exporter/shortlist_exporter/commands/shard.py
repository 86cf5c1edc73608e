"""Cut a bundle into bundles of class ranges, for layers that no machine holds.

  shortlist shard repo/lm/1 --shards 4 --out shards

Each shard is exported like the bundle, to its part of the layer, and is a bundle of its own in OUT/NAME-I-OF-N/VERSION;
OUT/shards.json says which classes each holds. Without --contexts, the few rows that the bundle carries are fitted on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from shortlist.bundle.reader import Bundle
from shortlist.cli.arguments import add_threads, parse_positive_int

from shortlist_exporter.export.shard import export_shards
from shortlist_exporter.inputs.sources import load_contexts

from .making import print_notes
from .progress import progress_bar
from .threads import limit_torch


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", type=Path, help="folder <name>/<version>")
    add("--shards", type=parse_positive_int, required=True, metavar="N", help="how many")
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the shards go")
    add("--contexts", type=Path, metavar="FILE", help="contexts [n, d] to fit on (default: those in the bundle)")
    add_threads(parser, "torch and sessions")


def run(args: argparse.Namespace) -> int:
    """Cut, and say how good each shard is; returns 0."""
    limit_torch(args.threads)
    bundle, console = Bundle(args.bundle), Console(soft_wrap=True)
    contexts = None if args.contexts is None else load_contexts(args.contexts)
    if contexts is None:
        Console(stderr=True, soft_wrap=True).print(f"note: fitted on the rows that {args.bundle} carries", markup=False)
    with progress_bar(f"cutting {args.bundle}") as progress:
        manifests = export_shards(bundle, args.shards, args.out, contexts, args.threads, progress)
    for manifest in manifests:
        print_notes(manifest)
        quality = manifest.quality
        precision = "" if quality is None else f", P@1 {quality.p_at_1:.4f} of its own classes"
        console.print(f"{manifest.name}/{manifest.version}: {manifest.classes:,} classes{precision}", markup=False)
    return 0
