"""Which version a request asks: by number, alias or share; while versions load, fail and go."""

from __future__ import annotations

import pytest
from shortlist.errors import NotFound
from shortlist.server.lifecycle.declaration import Declaration
from shortlist.server.lifecycle.version_table import VersionTable, place_alias
from shortlist.server.models import Model

REQUESTS = [f"request {number}".encode() for number in range(4000)]


def make_table(states, share=0.0, before=None, stable=3, canary=4):
    """Versions in these states; with `stable` and `canary` where these are no None."""
    aliases = {"stable": {"version": stable}} if stable else {}
    aliases |= {"canary": {"version": canary, "share": share}} if canary else {}
    models = {version: Model("lm", version, None) for version in states}
    for version, state in states.items():
        models[version].set_aside(state, state)
    return VersionTable("lm", models, Declaration.model_validate({"aliases": aliases}), before or {})


READY = dict.fromkeys([1, 2, 3, 4], "ready")


def test_without_aliases_the_latest_version_that_is_ready_answers():
    assert make_table(READY, stable=None, canary=None).find_default(b"").version == 4
    assert make_table(READY | {4: "loading"}, stable=None, canary=None).find_default(b"").version == 3
    assert make_table({1: "failed", 2: "loading"}, stable=None, canary=None).find_default(b"").version == 2


def test_stable_answers_whoever_names_no_version():
    table = make_table(READY)
    assert {table.find_default(request).version for request in REQUESTS} == {3}
    assert table.find_default(None).version == 3
    assert (table.find_alias("stable").version, table.find_alias("canary").version) == (3, 4)
    with pytest.raises(NotFound, match="no alias 'other'"):
        table.find_alias("other")


@pytest.mark.parametrize(
    ("declared", "before", "versions", "expected"),
    [(3, None, [1, 2, 3], 3), (3, 1, [1, 2], 1), (3, 5, [1, 2], 2), (3, None, [4, 5], 5), (3, None, [], None)],
)
def test_where_an_alias_leads_whose_version_is_not_there(declared, before, versions, expected):
    assert place_alias(declared, before, dict.fromkeys(versions)) == expected


def test_an_alias_that_moves_leads_to_its_former_version_until_the_new_one_is_ready():
    table = make_table({3: "ready", 5: "ready"})
    moved = Declaration.model_validate({"aliases": {"stable": {"version": 6}}})
    models = make_table({3: "ready", 5: "ready", 6: "loading"}).by_number
    later = table.with_versions(models, moved, None)
    assert later.find_alias("stable").version == 3
    models[6].set_aside("ready", "")
    assert later.find_alias("stable").version == 6
    latest = later.with_versions(models, moved, None)
    models[6].set_aside("rolled_back", "worse than promised")
    assert latest.find_alias("stable").version == 3


def test_a_share_is_answered_by_its_alias_and_the_same_request_always_by_the_same():
    table = make_table(READY, share=0.1)
    canaries = {request for request in REQUESTS if table.find_default(request).version == 4}
    assert 0.08 < len(canaries) / len(REQUESTS) < 0.12
    assert canaries == {r for r in REQUESTS if make_table(READY, share=0.1).find_default(r).version == 4}
    assert table.find_default(None).version == 3, "who only looks belongs to no share"


def test_a_share_that_grows_keeps_its_requests_and_the_next_release_is_tried_on_others():
    few, many = (
        {request for request in REQUESTS if make_table(READY, share).find_default(request).version == 4}
        for share in (0.1, 0.5)
    )
    assert few < many
    later = make_table(READY | {5: "ready"}, share=0.1, stable=4, canary=5)
    next_chosen = {request for request in REQUESTS if later.find_default(request).version == 5}
    assert len(next_chosen & few) < 0.3 * len(next_chosen)


@pytest.mark.parametrize("state", ["loading", "failed", "rolled_back"])
def test_the_share_of_a_version_that_does_not_answer_goes_to_stable(state):
    table = make_table(READY | {4: state}, share=0.5)
    assert {table.find_default(request).version for request in REQUESTS} == {3}
    assert table.find_alias("canary").version == 3
