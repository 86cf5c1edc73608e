"""Pages in Markdown: paragraphs and list items in lines of bounded width, tables and code as they are."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

LINE_WIDTH = 118  # characters of a line of prose
ITEM = re.compile(r"(\s*(?:[-*]|\d{1,2}\.)\s+)(.*)")
UNWRAPPED_LINE_STARTS = ("|", "#", "![", "<!--")  # tables, headings, pictures, comments


def wrap_prose(page: str, width: int = LINE_WIDTH) -> str:
    """`page` with every paragraph and list item wrapped to `width` characters; a wrapped page stays as it is."""
    return "".join(f"{line}\n" for block in split_blocks(page.splitlines()) for line in wrap_block(block, width))


def split_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs and list items, each as its lines; every other line alone."""
    block: list[str] = []
    fenced = False
    for line in lines:
        fence = line.startswith("```")
        alone = fenced or fence or not line.strip() or line.startswith(UNWRAPPED_LINE_STARTS)
        fenced ^= fence
        if block and (alone or ITEM.match(line)):
            yield block
            block = []
        if alone:
            # an empty first entry marks a line that is not wrapped
            yield ["", line]
        else:
            block.append(line)
    if block:
        yield block


def wrap_block(block: list[str], width: int) -> list[str]:
    """The lines of one block of `split_blocks`."""
    if not block[0]:
        return block[1:]
    item = ITEM.match(block[0])
    indent, first = item.groups() if item else ("", block[0])
    text = " ".join([first, *(line.strip() for line in block[1:])])
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
