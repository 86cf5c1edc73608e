"""A version that one process rolls back is served by no other, nor by one that comes later."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
from shortlist.fleet.processes.exchange import Request, Response
from shortlist.fleet.processes.journal import Journal

from tests.support.layers import contexts_elsewhere, make_contexts, make_dense, make_head
from tests.support.servers.fleet import Fleet, ask_everywhere, replace_process
from tests.support.servers.swaps import put_version

CONTEXTS = make_contexts(rows=3000, seed=1)
OTHERS = contexts_elsewhere(CONTEXTS.contexts[:400], 400)
OPTIONS = {"basis": "context", "width": "8", "full_view": "60"}
FLAGS = ("--precision-share", "1", "--precision-cpu", "1", "--threads", "1", "--precision-rollback")


@pytest.fixture
def fleet(tmp_path):
    """Two processes that serve two versions of a head that is bad at OTHERS."""
    bundle = make_head(tmp_path / "made", make_dense(), CONTEXTS, options=OPTIONS).folder
    home = tmp_path / "repository" / "lm"
    home.mkdir(parents=True)
    put_version(bundle, home, 1)
    put_version(bundle, home, 2)
    with Fleet(home.parent, *FLAGS, "--model-control", "explicit") as server:
        server.wait_for_processes(2)
        yield server


def list_versions(server):
    """The version that each of some connections is answered by; they are spread over the processes."""
    return [content["version"] for _, content in ask_everywhere(server, "GET", "/v1/models/lm")]


@pytest.mark.slow
def test_who_comes_after_a_roll_back_does_it_too_until_the_model_is_loaded_by_name(fleet):
    assert list_versions(fleet) == [2] * 4
    with shortlist.Client(fleet.url) as client:
        for start in range(0, 4 * len(OTHERS), 20):
            client.topk("lm", np.tile(OTHERS, (4, 1))[start : start + 20], 5)
    fleet.wait_until(lambda: list_versions(fleet) == [1] * 4)
    for number in range(2):
        replace_process(fleet, number)
    assert list_versions(fleet) == [1] * 4
    assert fleet.http.post("/v2/repository/models/lm/load").status_code == 200
    replace_process(fleet, 0)
    assert list_versions(fleet) == [2] * 4


def test_a_model_that_is_loaded_by_name_has_no_roll_backs():
    journal = Journal()
    for name in ("lm", "mt"):
        journal.note_roll_back([name, 2, "it was worse", "the files"])
        journal.note_roll_back([name, 2, "it is worse", "other files"])
    load = Request("POST", "/v2/repository/models/lm/load", b"", [], b"", ("", 0))
    journal.note(load, Response(200, [], b""))
    assert list(journal.roll_backs.values()) == [["mt", 2, "it is worse", "other files"]]
