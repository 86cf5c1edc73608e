"""Prompts of kinds of text."""

import pytest
import torch
from shortlist.errors import NotFound

from benchmarks.datasets.kinds.base import Recipe
from benchmarks.studies.generate import prompts
from benchmarks.studies.generate.prompts import PROMPT_TOKENS, PROMPTS_OF_KIND, choose_texts, cut_prompts


def tokenize(text, **_):
    return {"input_ids": [ord(character) for character in text]}


def test_prompts_begin_excerpts_and_short_ones_are_passed_over():
    texts = ["short", *(f"{index:02d} {'x' * 40}" for index in range(25))]
    rows = cut_prompts("code", texts, tokenize, [7])
    assert rows.shape == (PROMPTS_OF_KIND, 1 + PROMPT_TOKENS)
    assert rows[:, 0].eq(7).all()
    assert torch.equal(rows[0, 1:3], torch.tensor([ord("0"), ord("0")]))


def test_too_few_prompts_are_refused():
    with pytest.raises(NotFound, match="19 texts of kind 'code'"):
        cut_prompts("code", ["x" * 40] * 19, tokenize, [])


def test_kinds_are_the_first_that_are_found(monkeypatch, tmp_path, capsys):
    def find(name):
        return lambda place: (
            [] if name == "news" else [f"{name} {index} {chr(97 + index) * 700}" for index in range(26)]
        )

    recipes = [Recipe(name, find(name)) for name in prompts.KINDS]
    monkeypatch.setattr(prompts, "RECIPES", recipes)
    texts = choose_texts(None, tmp_path)
    assert list(texts) == [name for name in prompts.KINDS if name != "news"][:10]
    assert "no kind 'news'" in capsys.readouterr().err


def test_without_kinds_the_data_folder_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(prompts, "RECIPES", [Recipe(name, lambda place: []) for name in prompts.KINDS])
    with pytest.raises(NotFound, match="give --data"):
        choose_texts(None, tmp_path)
