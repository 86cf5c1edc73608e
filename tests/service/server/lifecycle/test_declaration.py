"""What a model's file may declare, and what is wrong with others."""

from __future__ import annotations

import json
import logging

import pytest
from shortlist.errors import BundleError
from shortlist.server.lifecycle.candidates import Candidates
from shortlist.server.lifecycle.declaration import (
    DECLARATION_FILE,
    MAX_DECLARATION_BYTES,
    Declaration,
    read_declaration,
)
from shortlist.server.lifecycle.version_table import VersionTable

STABLE = {"stable": {"version": 3}}


def declare(folder, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / DECLARATION_FILE).write_text(text)
    return read_declaration(folder)


def test_a_model_without_a_file_declares_nothing(tmp_path):
    assert read_declaration(tmp_path) == Declaration()
    assert declare(tmp_path, {}) == Declaration()


def test_all_that_can_be_declared(tmp_path):
    declaration = declare(tmp_path, {"latest": 2, "aliases": STABLE | {"canary": {"version": 4, "share": 0.05}}})
    assert declaration.latest == 2
    assert [(name, alias.version, alias.share) for name, alias in declaration.aliases.items()] == [
        ("stable", 3, 0.0),
        ("canary", 4, 0.05),
    ]
    assert declare(tmp_path, {"pinned": [3, 4]}).pinned == (3, 4)


WRONG = {
    "no JSON": "{",
    "a list": [],
    "a field that is not known": {"newest": 2},
    "no version": {"latest": 0},
    "a version as text": {"pinned": ["3"]},
    "nothing pinned": {"pinned": []},
    "two policies": {"latest": 1, "pinned": [1]},
    "an alias that is a number": {"aliases": {"3": {"version": 3}}},
    "an alias with a slash": {"aliases": {"a/b": {"version": 3}}},
    "an alias without a version": {"aliases": {"stable": {}}},
    "a share over 1": {"aliases": STABLE | {"canary": {"version": 4, "share": 1.5}}},
    "shares over 1 together": {"aliases": STABLE | {name: {"version": 4, "share": 0.6} for name in "ab"}},
    "a share without stable": {"aliases": {"canary": {"version": 4, "share": 0.1}}},
    "a share of stable": {"aliases": {"stable": {"version": 4, "share": 0.1}}},
    "too long": " " * (MAX_DECLARATION_BYTES + 1),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_in_a_sentence_that_names_the_file(tmp_path, content):
    with pytest.raises(BundleError) as refusal:
        declare(tmp_path, content)
    sentence = str(refusal.value)
    assert DECLARATION_FILE in sentence
    assert len(sentence) < 400
    assert sentence.isprintable()


@pytest.mark.parametrize(
    ("content", "latest", "expected"),
    [
        ({}, None, {1, 2, 5}),
        ({}, 2, {2, 5}),
        ({"latest": 1}, 2, {5}),
        ({"latest": 9}, 1, {1, 2, 5}),
        ({"pinned": [2, 7]}, 1, {2}),
    ],
)
def test_which_versions_are_chosen(tmp_path, content, latest, expected):
    assert declare(tmp_path, content).choose([1, 2, 5], latest) == expected


def test_a_declaration_is_logged_when_it_comes_into_force_and_when_it_is_right_again(tmp_path, caplog):
    """A release and a roll-back are changes of this file; whoever looks into what happened asks when they were."""
    caplog.set_level(logging.INFO, "shortlist.server.lifecycle.candidates")
    candidates, table = Candidates(tmp_path, None, None), VersionTable("lm", {})
    (tmp_path / "lm").mkdir()
    declarations = ["{}", {"aliases": STABLE}, {"aliases": STABLE}, "{", "{", {"aliases": STABLE}, {}]
    for content in declarations:
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / "lm" / DECLARATION_FILE).write_text(text)
        table = table.with_versions({}, *candidates.declare(table))
    in_force = "model 'lm' is served as its model.json declares: "
    stable = in_force + '{"aliases":{"stable":{"version":3}}}'
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        stable,
        stable,
        in_force + "{}",
    ]


def test_a_model_without_a_file_is_said_to_declare_nothing(tmp_path, caplog):
    caplog.set_level(logging.INFO, "shortlist.server.lifecycle.candidates")
    candidates = Candidates(tmp_path, None, None)
    (tmp_path / "lm").mkdir()
    candidates.warn("lm", "its folder could not be listed for a while")
    candidates.declare(VersionTable("lm", {}))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    candidates.declare(VersionTable("lm", {}, Declaration(latest=1)))
    assert caplog.records[-1].getMessage() == "model 'lm' has no model.json any more"
