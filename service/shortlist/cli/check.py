"""Verify a bundle: every hash, every graph, and the calibration replayed. Exits 1 at the first failure.

shortlist check repo/lm/1
"""

from __future__ import annotations

import argparse
from pathlib import Path

from shortlist.evaluation.canary import CANARY_K
from shortlist.evaluation.checked_head import load_and_check, open_bundle

from .arguments import add_device, add_threads


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    add_device(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Check the bundle, print its quality; returns 0."""
    head, precision = load_and_check(open_bundle(args.bundle), args.device, args.threads)
    manifest = head.manifest
    size = sum(entry.size for entry in manifest.files.values())
    print(f"{args.bundle}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}, on {head.device}")
    print(f"{'files':<20} {len(manifest.files)} verified, {size:,} bytes")
    print(f"{'calibration':<20} replayed, P@{min(CANARY_K, manifest.max_k)} {precision:.4f} on its rows")
    print(f"{'compiled loops':<20} {head.kernels or 'none: graphs answer in their place'}")
    if manifest.quality is not None:
        for name, figure in manifest.quality.figures().items():
            print(f"{name:<20} {figure:.6g}")
    return 0
