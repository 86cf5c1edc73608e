"""The servers that `bench` measures start, and every one responds rightly."""

from contextlib import ExitStack

import pytest

from benchmarks.http.bench import start_servers
from benchmarks.http.client.wrk import SCRIPT_PATH

pytestmark = pytest.mark.slow


def test_every_server_starts_and_sends_the_constant(tmp_path):
    with ExitStack() as stack:
        servers = start_servers(stack, tmp_path, 5)
        assert [server.name for server in servers] == ["infer", "infer_key", "echo", "json", "json_key", "fastapi"]
        assert {server.check().status_code for server in servers} == {200}


def test_the_script_of_wrk_is_there():
    assert SCRIPT_PATH.is_file()
