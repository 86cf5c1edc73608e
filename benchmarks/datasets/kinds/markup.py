"""Paragraphs out of HTML pages, and manual pages as a terminal shows them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

from shortlist.errors import NotFound

BLOCKS = frozenset(("p", "h1", "h2", "h3", "h4", "li", "dt", "dd", "td", "title"))
SKIPPED = frozenset(("script", "style", "pre"))
LEAST_LETTERS = 20  # of a paragraph of which a language can be told
LEAST_LETTER_SHARE = 0.35  # of the letters: those of the language's script
LEAST_WORD_SHARE = 0.08  # of the words of a language in Latin letters: its common ones
COMMON_WORDS = {
    "en": "the of and to is in that for you with are this can be it on as by",
    "de": "der die das und ist nicht den von mit ein eine zu auf werden für sie im des",
    "fr": "le la les des et est une dans que pour du pas sur par vous ce qui sont",
    "it": "il di che la è per un una del non con le della sono si gli nel",
    "es": "el de que la los y es en un una por con para se del las no",
    "pl": "i w na z się nie jest do to że są jak lub dla oraz przez",
}
LETTERS = {
    "ru": r"\u0400-\u04ff",
    "el": r"\u0370-\u03ff",
    "ja": r"\u3040-\u30ff\u4e00-\u9fff",
    "ko": r"\uac00-\ud7a3",
    "zh": r"\u4e00-\u9fff",
}


class Paragraphs(HTMLParser):
    """Collects the text of every block of a page, code left out."""

    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[str] = []
        self.parts: list[str] = []
        self.skipped = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a block."""
        if tag in SKIPPED:
            self.skipped += 1
        elif tag in BLOCKS:
            self.end_paragraph()

    def handle_endtag(self, tag: str) -> None:
        """End a block."""
        if tag in SKIPPED:
            self.skipped = max(0, self.skipped - 1)
        elif tag in BLOCKS:
            self.end_paragraph()

    def handle_data(self, data: str) -> None:
        """Add to the block."""
        if not self.skipped:
            self.parts.append(data)

    def end_paragraph(self) -> None:
        """Keep the text since the last block."""
        text = " ".join("".join(self.parts).split())
        self.parts = []
        if text:
            self.paragraphs.append(text)


def read_paragraphs(page: str) -> list[str]:
    """The paragraphs, headings and items of an HTML page."""
    parser = Paragraphs()
    parser.feed(page)
    parser.close()
    parser.end_paragraph()
    return parser.paragraphs


def keep_language(paragraphs: Iterable[str], language: str) -> str:
    """The paragraphs in a language, joined: pages that are translated in part have others among them."""
    kept = dict.fromkeys(text for text in paragraphs if is_in_language(text, language))
    return "\n\n".join(kept)


def is_in_language(text: str, language: str) -> bool:
    """Whether a text is in the language, by its letters, or by its common words where these are Latin."""
    letters = len(re.findall(r"[^\W\d_]", text))
    if letters < LEAST_LETTERS:
        return False
    if language in LETTERS:
        return len(re.findall(f"[{LETTERS[language]}]", text)) >= LEAST_LETTER_SHARE * letters
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {name: sum(word in common.split() for word in words) for name, common in COMMON_WORDS.items()}
    return counts[language] == max(counts.values()) and counts[language] >= LEAST_WORD_SHARE * len(words)


def render_manual_pages(paths: Iterable[Path]) -> Iterator[str]:
    """Manual pages as `man` prints them on 80 columns; raises NotFound where there is no `man`."""
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(render_manual_page, paths)


def render_manual_page(path: Path) -> str:
    """One page as text, without bold and underlined letters."""
    settings = os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFOPT": "-c"}
    try:
        page = subprocess.run(["man", "-l", str(path)], env=settings, capture_output=True, check=False)
    except OSError as error:
        raise NotFound("there is no program `man`, which renders manual pages: install man-db") from error
    return page.stdout.decode("utf-8", "replace")
