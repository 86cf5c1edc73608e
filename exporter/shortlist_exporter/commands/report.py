"""One page about a bundle: precision against time and cost, candidates, clusters, log-probabilities, memory.

  shortlist report repo/lm/1 --contexts other.safetensors news.npy

Writes index.html, which needs no other file and no network, its pictures as PNG, and figures.json to the bundle's
report/ folder. Every file of contexts is held against the bundle's promise. What the export measured on its held-out
rows is kept; without that and without --contexts, the few rows that the bundle carries are measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shortlist.bundle.files import REPORT_FOLDER
from shortlist.bundle.reader import Bundle
from shortlist.cli.arguments import add_device, add_threads, parse_natural_int, parse_positive_int
from shortlist.head import Head

from shortlist_exporter.records.report import Figures
from shortlist_exporter.report.measure.samples import MAX_SAMPLE_ROWS, name_samples, read_sample
from shortlist_exporter.report.write import REPORT_PAGE_FILE, list_asked_depths, write_report

from .progress import progress_bar
from .threads import limit_torch


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", type=Path, help="folder <name>/<version>")
    add(
        "--contexts",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="contexts [n, d], safetensors or npy, one file a kind of text (default: those that the export held out)",
    )
    add("--out", type=Path, metavar="FOLDER", help="where the report goes (default: the bundle's report/)")
    add(
        "--rows",
        type=parse_positive_int,
        default=MAX_SAMPLE_ROWS,
        metavar="N",
        help="most distinct rows of a file measured (default: %(default)s)",
    )
    add("--seed", type=parse_natural_int, default=0, help="of the rows' random order (default: %(default)s)")
    add_device(parser)
    add_threads(parser, "torch and sessions")


def run(args: argparse.Namespace) -> int:
    """Measure the bundle, write the page, print where it is; returns 0."""
    limit_torch(args.threads)
    bundle = Bundle(args.bundle)
    head = Head(bundle, args.device, args.threads)
    with progress_bar("reading") as progress:
        named_paths = zip(args.contexts, name_samples(args.contexts), strict=True)
        depths = list_asked_depths(bundle)
        samples = [read_sample(head, path, name, args.rows, args.seed, depths) for path, name in named_paths]
        figures = write_report(bundle, head, samples, args.out, progress=progress)
    print_verdict(figures, (args.out or args.bundle / REPORT_FOLDER) / REPORT_PAGE_FILE)
    return 0


def print_verdict(figures: Figures, page: Path) -> None:
    """Print the page's path and the verdict on stdout; a broken promise goes to stderr."""
    sys.stdout.write(f"{page}\n")
    stream = sys.stderr if figures.verdict.status == "broken" else sys.stdout
    stream.write(f"{'warning: ' if figures.verdict.status == 'broken' else ''}{figures.verdict.sentence}\n")
