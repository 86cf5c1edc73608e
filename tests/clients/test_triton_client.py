"""Unmodified tritonclient.http and tritonclient.http.aio, every method, against the real server."""

from __future__ import annotations

import pytest

from tests.clients.case import failures, python_of, run_script, write_case
from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["http", "aio"])
def test_every_method(small_repository, tmp_path, kind):
    python = python_of("triton")
    case = write_case(tmp_path, small_repository)
    with RunningServer(small_repository, "--threads", "1", "--shared-memory", "--model-control", "explicit") as server:
        report = run_script(python, "triton_methods.py", server, case, kind)
        assert server.process.poll() is None
    assert not failures(report)
    assert len(report) > 30
