"""What tests do with the page, and see of it."""

from __future__ import annotations

import re

import httpx

PHONE = {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}, "has_touch": True}
LOOKS = [{"color_scheme": "light"}, PHONE]
TEXT = "w3 w7 w9"
REFUSED = "the server responded with a status of 400"


def choose_head(page, name):
    """Choose a head by its name."""
    label = page.locator("#head option").filter(has_text=re.compile(f"^{name}, ")).inner_text()
    page.select_option("#head", label=label)


def ask_server(playground, **question):
    """The rows of the answer to a question."""
    return httpx.post(f"{playground.url}/playground/next", json={"k": 10} | question).json()["rows"]


def words_by_server(playground, **question):
    """The ids of both sides."""
    (row, *_) = ask_server(playground, **question)
    return [[candidate["id"] for candidate in row[side]["candidates"]] for side in ("head", "dense")]


def words_of(page):
    """The ids that both tables of the page show."""
    tables = page.locator("#sides table").all()
    read = "buttons => buttons.map(button => Number(button.title.replace('class ', '')))"
    return [table.locator("button").evaluate_all(read) for table in tables]


def story_of(page):
    """The words that were chosen so far."""
    return page.locator("#words button").all_inner_texts()
