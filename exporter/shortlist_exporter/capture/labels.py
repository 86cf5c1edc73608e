"""Printable names of the classes from a tokenizer: a Hugging Face folder, a tokenizer.json, or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from shortlist.errors import BadInput, NotFound

from shortlist_exporter.inputs.formats import gguf_file
from shortlist_exporter.inputs.formats.hugging_face import find_unnamed_ids, load_tokenizer
from shortlist_exporter.inputs.sources import Dense

from .language_model import LanguageModel

SENTENCE_PIECE_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's
SENTENCE_PIECE_BYTE = re.compile(r"<0x([0-7][0-9A-F])>")  # SentencePiece's name of a byte that is a character
PRINTABLE_BYTES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def read_labels(path: Path, dense: Dense) -> list[str]:
    """V printable names, empty for rows that are no class; raises NotFound, BadInput, MissingExtra.

    A token is shown as it prints, its leading space kept; one that is but a part of a character by its raw name.
    """
    if not path.exists():
        raise NotFound(f"there is no tokenizer at {path}: give a Hugging Face folder, a tokenizer.json or a GGUF file")
    if path.suffix == ".gguf":
        return read_gguf_labels(path, dense)
    tokenizer = load_tokenizer(path)
    padded = np.union1d(dense.padded, find_unnamed_ids(tokenizer, dense.classes, path))
    return LanguageModel(None, tokenizer, replace(dense, padded=padded), path).make_labels()


def read_gguf_labels(path: Path, dense: Dense) -> list[str]:
    """V printable names from the vocabulary in a GGUF file; raises BadInput, MissingExtra."""
    reader = gguf_file.open_gguf(path)
    names = gguf_file.read_tokens(reader)
    if names is None:
        raise BadInput(f"{path} holds no vocabulary: give a tokenizer.json or a Hugging Face folder")
    if len(names) > dense.classes:
        raise BadInput(f"{path} has {len(names)} tokens but the output layer {dense.classes} rows: take both from one")
    kind = str(gguf_file.read_field(reader, "tokenizer.ggml.model"))
    decode_token = TOKEN_DECODERS.get(kind, decode_sentence_piece)
    padded = {*dense.padded.tolist(), *gguf_file.find_padding(reader, dense.classes).tolist()}
    return ["" if i in padded else decode_token(names[i]) for i in range(dense.classes)]


def make_byte_alphabet() -> dict[str, int]:
    """GPT-2's table of character -> byte: a printable byte is its own character, others have one from 256 on."""
    others = [byte for byte in range(256) if byte not in PRINTABLE_BYTES]
    return {chr(byte): byte for byte in PRINTABLE_BYTES} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES_BY_CHARACTER = make_byte_alphabet()


def decode_byte_level(name: str) -> str:
    """A byte-level token as it prints."""
    if any(character not in BYTES_BY_CHARACTER for character in name):
        return name
    text = bytes(BYTES_BY_CHARACTER[character] for character in name).decode(errors="replace")
    return name if "\N{REPLACEMENT CHARACTER}" in text else text


def decode_sentence_piece(name: str) -> str:
    """A SentencePiece token as it prints."""
    byte = SENTENCE_PIECE_BYTE.fullmatch(name)
    return chr(int(byte[1], 16)) if byte else name.replace(SENTENCE_PIECE_SPACE, " ")


TOKEN_DECODERS: dict[str, Callable[[str], str]] = {"gpt2": decode_byte_level}
