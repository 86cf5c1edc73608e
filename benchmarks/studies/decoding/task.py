"""The translator of the examples with its texts: trained where it is missing, a stopped training goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Dense

from examples.translate.corpus import Vocabulary, load_vocabulary, read_lines
from examples.translate.model import Transformer, load_marian

FOLDER, SOURCE, TARGET = "enja", "en", "ja"
SPLITS = ("train", "dev", "test")
MODEL, SOURCE_WORDS, TARGET_WORDS = "model.npz", "vocab.source.yml", "vocab.target.yml"
# glibc keeps the memory of large tensors for the next step: training takes half the time
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "500000000",
}


@dataclass(frozen=True)
class Task:
    """folder: of the translator's files. sources, targets: tokenised sentences by split."""

    folder: Path
    model: Transformer
    words: tuple[Vocabulary, Vocabulary]
    sources: dict[str, list[str]]
    targets: dict[str, list[str]]

    def encode(self, lines: list[str]) -> list[list[int]]:
        """The ids of source sentences, each with its end."""
        return [self.words[0].encode(line) for line in lines]

    def make_dense(self) -> Dense:
        """The translator's output layer."""
        weight, bias = (self.model[f"decoder_ff_logit_out_{name}"].detach().numpy() for name in ("W", "b"))
        return Dense(np.ascontiguousarray(weight.T), bias.copy())


def open_task(data: Path, folder: Path, threads: int) -> Task:
    """The translator in `folder`, trained on `data`/enja where it is missing; raises BadInput without the texts."""
    texts = {
        language: {split: data / FOLDER / f"{split}.{language}" for split in SPLITS} for language in (SOURCE, TARGET)
    }
    missing = [path for by_split in texts.values() for path in by_split.values() if not path.is_file()]
    if missing:
        raise BadInput(f"there is no {missing[0]}: give a folder with {FOLDER}/ as --data")
    if not (folder / TARGET_WORDS).is_file():
        train(texts[SOURCE]["train"], texts[TARGET]["train"], folder, threads)
    return Task(
        folder,
        load_marian(folder / MODEL),
        (load_vocabulary(folder / SOURCE_WORDS), load_vocabulary(folder / TARGET_WORDS)),
        *({split: read_lines(path) for split, path in texts[language].items()} for language in (SOURCE, TARGET)),
    )


def train(source: Path, target: Path, folder: Path, threads: int) -> None:
    """Train to the end; raises BadInput where that fails."""
    command = [sys.executable, "-m", "examples.translate.train", "--threads", str(threads), "--out", str(folder)]
    result = subprocess.run(
        [*command, "--source", str(source), "--target", str(target)], env=os.environ | KEEP_MEMORY, check=False
    )
    if result.returncode:
        raise BadInput(f"the training ended with {result.returncode}: what it said stands above")
