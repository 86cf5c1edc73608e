"""What the benchmarks' command lines share: help as the module's docstring has it, and errors of one sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from shortlist.errors import ShortlistError

BENCH_FOLDER = Path("build/bench")


def make_parser(module: str, text: str | None, cache: str = "what is made stays here") -> argparse.ArgumentParser:
    """The parser of `python -m <module>` with `text` as its help; its option --cache is described by `cache`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=BENCH_FOLDER, metavar="DIR", help=f"{cache} (%(default)s)")
    return parser


def run_command(module: str, action: Callable[[], int | None]) -> int:
    """Call `action` and return its exit code; a ShortlistError becomes one line on stderr and 1."""
    try:
        return action() or 0
    except ShortlistError as error:
        print(f"{module}: {error}", file=sys.stderr)
        return 1
