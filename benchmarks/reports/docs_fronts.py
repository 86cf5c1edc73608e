"""The front tables and pictures that stand in the documentation, refreshed from runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from shortlist.errors import NotFound

from benchmarks.common.runs import Run

from .page import PAGE_FILE, PICTURES_FOLDER
from .plots import plot_fronts
from .tables import format_front, format_levels, select_single_row_runs

PUBLISHED_PICTURES = (("smollm2", 1), ("ptb", 1), ("ptb", 5), ("synthetic", 1))  # data set and k: those that pages show
LEVELS_TABLE = "levels"  # the name of the table over all data sets
TABLE_BLOCK = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)


def publish_fronts(sets: Mapping[str, Sequence[Run]], docs: Path) -> None:
    """Rewrite the marked tables of `docs`/benchmarks.md and draw the pictures that the pages of `docs` show.

    A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, where NAME is a data set in `sets`, or
    `levels` for all of them; what has no runs stays as it is. Raises NotFound where the page is missing.
    """
    page = docs / PAGE_FILE
    if not page.is_file():
        raise NotFound(f"there is no {page}: give --docs the folder of the documentation")
    text = TABLE_BLOCK.sub(lambda block: replace_table(block, sets), page.read_text("utf-8"))
    page.write_text(text, "utf-8")
    for name, k in PUBLISHED_PICTURES:
        if name in sets:
            plot_fronts(select_single_row_runs(sets[name]), docs / PICTURES_FOLDER / f"{name}-p{k}.png", k)


def replace_table(block: re.Match[str], sets: Mapping[str, Sequence[Run]]) -> str:
    """A marked block with its table made again."""
    name, (start, end) = block["name"], (block[1], block[3])
    if name == LEVELS_TABLE and sets:
        return f"{start}{format_levels(sets)}{end}"
    return f"{start}{format_front(sets[name])}{end}" if name in sets else block[0]
