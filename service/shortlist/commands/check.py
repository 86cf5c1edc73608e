"""Verify a bundle: every hash, every graph, and the calibration replayed. Exits 1 at the first failure.

shortlist check repo/lm/1
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..bundle import Bundle
from ..canary import check_canary
from ..head import Head


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Check, print the quality, return 0."""
    bundle = Bundle(args.bundle)
    head = Head(bundle, args.device, args.threads)
    replayed = check_canary(head, bundle)
    manifest = bundle.manifest
    print(f"{args.bundle}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}, on {head.device}")
    print(
        f"files        {len(manifest.files)} verified, {sum(entry.size for entry in manifest.files.values()):,} bytes"
    )
    print(f"calibration  replayed, P@10 {replayed:.4f} on its rows")
    if manifest.quality is not None:
        for name, figure in manifest.quality.model_dump().items():
            print(f"{name:<20} {figure:.6g}")
    return 0
