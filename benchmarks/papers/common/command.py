"""A paper's command line: its options, its page in the documentation, its errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.markdown import wrap_prose

DOCS = Path("docs")
PICTURES = DOCS / "pictures"


def make_paper_parser(module: str, text: str | None, data: str | None = None) -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.papers.<module>`, with `text` as its help.

    It has --cache, and where `data` says what the data folder must hold, as in "ptb/", a required --data.
    """
    parser = make_parser(f"benchmarks.papers.{module}", text, cache="contexts, checkpoints and bundles stay here")
    if data is not None:
        parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"folder with {data}")
    return parser


def write_page(module: str, page: str, make: Callable[[], str | None]) -> int:
    """Write the Markdown that `make` returns, its prose wrapped, to docs/<page>; write nothing where that is None.

    Returns the exit code.
    """

    def write() -> None:
        text = make()
        if text is not None:
            (DOCS / page).write_text(wrap_prose(text), "utf-8")

    return run_command(f"benchmarks.papers.{module}", write)
