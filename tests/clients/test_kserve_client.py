"""The unmodified kserve client against the real server."""

from __future__ import annotations

import pytest

from tests.clients.case import failures, python_of, run_script, write_case
from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow


def test_every_method_of_protocol_v2(small_repository, tmp_path):
    python = python_of("kserve")
    case = write_case(tmp_path, small_repository)
    with RunningServer(small_repository, "--threads", "1") as server:
        report = run_script(python, "kserve_methods.py", server, case)
    assert not failures(report)
    assert len(report) > 8
