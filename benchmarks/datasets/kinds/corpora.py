"""Kinds out of the folder DATA and out of packages that hold a corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.errors import NotFound
from shortlist_exporter.capture.texts import read_documents

from .base import Place

PARTS = 40  # documents that a text without documents is cut into
PART_LINES = 120
LEAST_TURNS = 15  # of a conversation


def require_data(place: Place, path: str) -> Path:
    """A file of the folder DATA; raises NotFound."""
    if place.data is None or not (place.data / path).is_file():
        raise NotFound(f"it needs --data (or DATA), a folder with {path}")
    return place.data / path


def find_wikitext(place: Place) -> list[str]:
    """The articles of WikiText-2's test text."""
    return read_documents(require_data(place, "wikitext-2/test.txt"))


def find_news(place: Place) -> Iterator[str]:
    """Parts of Penn Treebank's test text, a sentence a line."""
    words = require_data(place, "ptb/vocab.txt").read_text("utf-8").split("\n")
    ids = np.load(require_data(place, "ptb/test.npy"))
    lines = [line.strip() for line in " ".join(words[word] for word in ids).split("<eos>")]
    return cut_parts(lines)


def find_english_sentences(place: Place) -> Iterator[str]:
    """Parts of a collection of short sentences."""
    return cut_parts(require_data(place, "enja/train.en").read_text("utf-8").splitlines())


def find_japanese_sentences(place: Place) -> Iterator[str]:
    """The same in Japanese, a space between words."""
    return cut_parts(require_data(place, "enja/train.ja").read_text("utf-8").splitlines())


def cut_parts(lines: list[str]) -> Iterator[str]:
    """The first lines of each of `PARTS` equal parts."""
    step = len(lines) // PARTS
    return ("\n".join(lines[start : start + min(step, PART_LINES)]) for start in range(0, step * PARTS, step))


def find_dialogue(place: Place) -> Iterator[str]:
    """Conversations of two people, from the package chitchat-dataset."""
    path = place.packages.unpack_python("chitchat-dataset") / "chitchat_dataset" / "dataset.json"
    for conversation in json.loads(path.read_text("utf-8")).values():
        turns = list_turns(conversation)
        if len(turns) >= LEAST_TURNS:
            yield "\n".join(turns)


def list_turns(conversation: dict[str, Any]) -> list[str]:
    """What is said, each line with the letter of who says it."""
    messages = [message for block in conversation["messages"] for message in block]
    speakers = list(dict.fromkeys(message["sender"] for message in messages))
    return [f"{'AB'[speakers.index(message['sender']) % 2]}: {message['text'].strip()}" for message in messages]
