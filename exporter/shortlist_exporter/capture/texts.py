"""Texts to run a language model over: files and folders of them, each with its weight, cut into documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist.errors import BadInput, NotFound

TEXT_SUFFIX = ".txt"
BYTE_ORDER_MARK = "\ufeff"  # with which some editors begin a file
# a form feed, which is no part of the text; WikiText's titles, a novel's chapters
DOCUMENT_START = re.compile(r"^\f\n|^(?= = [^=].* = \n)|^(?=Chapter \w+\n)", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A UTF-8 file. weight: over 0, in proportion to which it gives contexts; None: it is read with its neighbours."""

    path: Path
    weight: float | None = None


def list_texts(texts: Sequence[Text]) -> list[Text]:
    """The texts, a folder replaced by its `.txt` files, which weigh the same; all have a weight where one has.

    Raises NotFound where there is no such file or folder, or a folder without texts.
    """
    files = [file for text in texts for file in list_files(text)]
    if all(file.weight is None for file in files):
        return files
    return [Text(file.path, 1.0 if file.weight is None else file.weight) for file in files]


def list_files(text: Text) -> list[Text]:
    """The text itself, or those in the folder that it is, each of which has the folder's weight or 1."""
    if not text.path.is_dir():
        if not text.path.is_file():
            raise NotFound(f"there is no text file {text.path}")
        return [text]
    paths = sorted(text.path.glob(f"*{TEXT_SUFFIX}"))
    if not paths:
        raise NotFound(f"the folder {text.path} holds no {TEXT_SUFFIX} file: give a folder of texts, or a file")
    return [Text(path, 1.0 if text.weight is None else text.weight) for path in paths]


def read_texts(texts: Sequence[Text]) -> list[list[str]]:
    """The documents of each text; raises BadInput, NotFound, and BadInput where no text has a word."""
    documents = [read_documents(text.path) for text in texts]
    if not any(documents):
        raise BadInput(f"{', '.join(str(text.path) for text in texts)} holds no text: give a file with words in it")
    return documents


def read_documents(path: Path) -> list[str]:
    """The parts of a file that begin at a heading or a form feed, blank ones left out; raises BadInput, NotFound."""
    try:
        content = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start}): convert it first") from error
    except FileNotFoundError as error:
        raise NotFound(f"there is no text file {path}") from error
    return [part for part in DOCUMENT_START.split(content.removeprefix(BYTE_ORDER_MARK)) if part.strip()]
