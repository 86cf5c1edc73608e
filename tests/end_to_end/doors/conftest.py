"""One server and the heads that it serves, for every door."""

from __future__ import annotations

import shutil

import pytest
import shortlist

from tests.support.layers import RunningServer

from .doors import Doors


@pytest.fixture(scope="session")
def doors(small_repository, promise_head, tmp_path_factory):
    root = tmp_path_factory.mktemp("doors")
    shutil.copytree(small_repository, root, dirs_exist_ok=True)
    shutil.copytree(promise_head.folder, root / "grouped" / "1")
    heads = {name: shortlist.load(root / name / "1", threads=1) for name in ("lm", "dense", "grouped")}
    with RunningServer(root) as server:
        doors = Doors(server.url, heads)
        yield doors
        doors.close()
