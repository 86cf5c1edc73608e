"""A real server with little room."""

from __future__ import annotations

import pytest
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export

from tests.support.layers import RunningServer, make_contexts, make_dense

from .requests import CLASSES, DIM, MANY, PATIENT, wait_for_held


@pytest.fixture(scope="package")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("slow")
    export(make_dense(CLASSES, DIM), make_contexts(dim=DIM), root / "slow" / "1", Request("full", threads=1))
    return root


@pytest.fixture(scope="module")
def server(repository):
    flags = ("--queue-rows", str(MANY + 10), "--threads", "1", "--body-limit", "4000000", "--body-timeout", "2")
    with RunningServer(repository, *flags, *PATIENT) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_held_afterwards(request):
    yield
    if "server" in request.fixturenames:
        wait_for_held(request.getfixturevalue("server"), lambda rows: rows == 0)
