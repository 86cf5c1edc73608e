"""Kinds of text as contexts of a language model, found on the machine and kept: a killed run goes on where it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.capture.language_model import LanguageModel, load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.capture.run import capture_windows
from shortlist_exporter.capture.windows import Windows, cut_windows
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import load_contexts
from shortlist_models.progress import Progress

from .base import Kind, Place, Recipe
from .excerpts import choose_excerpts
from .packages import Packages
from .recipes import RECIPES

KIND_ROWS = 10_000  # contexts of a kind, at least
KIND_DOCUMENTS = 20  # documents of a kind, at least
MOST_DOCUMENTS = 40
WINDOW = 256  # tokens
SEED = 0

Notice = Callable[[str], None]


def print_notice(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def load_kinds(
    data: Path | None,
    cache: Path,
    *,
    recipes: Sequence[Recipe] = RECIPES,
    model: Path | None = None,
    notice: Notice = print_notice,
) -> list[Kind]:
    """The kinds that can be had, each at least `KIND_ROWS` contexts of `KIND_DOCUMENTS` documents, from `cache`.

    What is not there is found and captured first, by the packaged model unless `model` is another. `notice` gets a
    sentence for each kind that cannot be had.
    """
    path = model or find_packaged_model()
    folder = cache / "kinds" / path.stem
    place = Place(data, Packages(cache / "kinds" / "packages"))
    opened: list[LanguageModel] = []

    def open_model() -> LanguageModel:
        opened[:] = opened or [load_model(path)]
        return opened[0]

    kinds = []
    with progress_bar("kinds of text") as report:
        for recipe in recipes:
            out = folder / f"{recipe.name.replace(' ', '-')}.safetensors"
            try:
                if not out.is_file():
                    capture_kind(recipe, place, open_model, out, report)
            except (NotFound, BadInput) as error:
                notice(f"no kind {recipe.name!r}: {error}")
                continue
            kinds.append(read_kind(recipe, out))
    return kinds


def capture_kind(
    recipe: Recipe, place: Place, open_model: Callable[[], LanguageModel], out: Path, report: Progress
) -> None:
    """Find the documents of a kind and write its contexts; raises NotFound where they are too few."""
    excerpts = choose_excerpts(recipe.find(place), MOST_DOCUMENTS, SEED)
    if len(excerpts) < KIND_DOCUMENTS:
        raise NotFound(f"{len(excerpts)} documents were found, of {KIND_DOCUMENTS}")
    model = open_model()
    windows = choose_windows(model, excerpts)
    capture_windows(
        model, windows, out, progress=lambda _, done, total: report(f"contexts of {recipe.name}", done, total)
    )


def choose_windows(model: LanguageModel, excerpts: Sequence[str]) -> Windows:
    """The first windows of all excerpts, then the second ones, until there are enough; raises NotFound."""
    parts = []
    for index, excerpt in enumerate(excerpts):
        try:
            windows = cut_windows([excerpt], model.tokenizer, WINDOW, "an excerpt")
        except BadInput:  # it is shorter than a window
            continue
        parts.append(Windows(windows.tokens, np.full(len(windows.tokens), index, np.int32)))
    places = np.concatenate([np.arange(len(part.tokens)) for part in parts] or [np.empty(0, np.int64)])
    count = -(-KIND_ROWS // WINDOW)
    if len(parts) < KIND_DOCUMENTS or len(places) < count:
        raise NotFound(
            f"{len(parts)} documents and {len(places) * WINDOW:,} tokens were found, of "
            f"{KIND_DOCUMENTS} and {KIND_ROWS:,}"
        )
    every = Windows(np.concatenate([part.tokens for part in parts]), np.concatenate([part.documents for part in parts]))
    first = np.sort(np.argsort(places, kind="stable")[: max(count, len(parts))])
    return every.select(first)


def read_kind(recipe: Recipe, path: Path) -> Kind:
    """The kind whose contexts are at `path`."""
    contexts = load_contexts(path)
    assert contexts.documents is not None
    return Kind(recipe.name, contexts.contexts, contexts.documents, recipe.in_mixture)
