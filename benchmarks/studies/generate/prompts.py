"""The prompts: of ten kinds of text, found on this machine and in the data folder by a rule.

The kinds are the first ten of `KINDS` with documents enough. Of each, excerpts of 20 documents are chosen as
`benchmarks.datasets.kinds` chooses them, none of which is among the shipped texts that heads are fitted on; a prompt
is the first `PROMPT_TOKENS` tokens of an excerpt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from shortlist.errors import NotFound

from benchmarks.datasets.kinds.base import Place, Recipe
from benchmarks.datasets.kinds.excerpts import choose_excerpts
from benchmarks.datasets.kinds.packages import Packages
from benchmarks.datasets.kinds.recipes import RECIPES

KINDS = (
    *("wikitext", "news", "sentences", "python", "c", "javascript", "markdown", "shell", "licences", "html", "perl"),
    *("japanese sentences", "dialogue", "manual pages", "german", "french", "spanish", "russian", "italian", "greek"),
)
KIND_COUNT, PROMPTS_OF_KIND, PROMPT_TOKENS = 10, 20, 24
SEED = 0

Texts = dict[str, list[str]]


def choose_texts(data: Path | None, cache: Path) -> Texts:
    """Excerpts by kind, more than there will be prompts; raises NotFound where kinds are too few."""
    place, texts = Place(data, Packages(cache / "kinds" / "packages")), Texts()
    for recipe in list_recipes():
        if len(texts) == KIND_COUNT:
            break
        try:
            texts[recipe.name] = read_excerpts(recipe, place)
        except NotFound as error:
            print(f"no kind {recipe.name!r}: {error}", file=sys.stderr)
    if len(texts) < KIND_COUNT:
        raise NotFound(f"{len(texts)} kinds of text were found, of {KIND_COUNT}: give --data, with wikitext-2 and ptb")
    return texts


def list_recipes() -> Iterator[Recipe]:
    """The recipes of `KINDS`, in their order."""
    recipes = {recipe.name: recipe for recipe in RECIPES}
    return (recipes[name] for name in KINDS)


def read_excerpts(recipe: Recipe, place: Place) -> list[str]:
    """Twice the excerpts that are needed, since some may be short; raises NotFound where they are too few."""
    excerpts = choose_excerpts(recipe.find(place), 2 * PROMPTS_OF_KIND, SEED)
    if len(excerpts) < PROMPTS_OF_KIND:
        raise NotFound(f"{len(excerpts)} documents were found, of {PROMPTS_OF_KIND}")
    return excerpts


def make_prompts(texts: Texts, tokenizer: Any, prefix: list[int]) -> dict[str, torch.Tensor]:
    """Token ids [20, t] int64 by kind, each row with the prefix of the tokenizer; raises NotFound."""
    return {kind: cut_prompts(kind, excerpts, tokenizer, prefix) for kind, excerpts in texts.items()}


def cut_prompts(kind: str, excerpts: list[str], tokenizer: Any, prefix: list[int]) -> torch.Tensor:
    """The prompts of one kind; raises NotFound where too few excerpts are long enough."""
    rows = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in excerpts]
    rows = [prefix + row[:PROMPT_TOKENS] for row in rows if len(row) >= PROMPT_TOKENS]
    if len(rows) < PROMPTS_OF_KIND:
        raise NotFound(f"{len(rows)} texts of kind {kind!r} have {PROMPT_TOKENS} tokens, of {PROMPTS_OF_KIND}")
    return torch.tensor(rows[:PROMPTS_OF_KIND])
