"""Shared memory of a real server: no other program's memory is read, written or even found by it."""

from __future__ import annotations

import os
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from tests.support.layers import DIM, RunningServer, run_cli
from tests.support.servers.responses import expect_success, read_refusal

pytestmark = pytest.mark.slow

FOLDER = Path("/dev/shm")
REGION = "/v2/systemsharedmemory/region"
SECRET = b"TOPSECRT-password-of-another-one"
NAMES = (f"other-program-{os.getpid()}", f"shortlist-other-user-{os.getpid()}", f"shortlist-none-{os.getpid()}")


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository, "--shared-memory") as running:
        yield running


@pytest.fixture
def victims():
    """Memory of another program; where tests may, also memory of another user under a name that is permitted."""
    paths = [FOLDER / name for name in NAMES[:2]]
    for path in paths:
        path.write_bytes(SECRET)
        path.chmod(0o666)
    if os.geteuid() == 0:
        os.chown(paths[1], 65534, 65534)
    else:
        paths[1].unlink()
    yield
    for path in paths:
        path.unlink(missing_ok=True)


def register(server, key, size, region="stolen"):
    return server.http.post(f"{REGION}/{region}/register", json={"key": key, "offset": 0, "byte_size": size})


def test_other_programs_memory_is_not_registered_nor_told_from_none(server, victims):
    answers = {name: read_refusal(register(server, f"/{name}", 8)).replace(name, "KEY") for name in NAMES}
    assert "may not be registered" in answers[NAMES[0]]
    assert answers[NAMES[1]] == answers[NAMES[2]]
    assert server.http.get("/v2/systemsharedmemory/status").json() == []


def test_an_error_shows_no_byte_of_what_is_registered(server):
    """Eight bytes of any memory came out of the sentence that an id is no class."""
    block = SharedMemory(f"shortlist-own-{os.getpid()}", create=True, size=64)
    try:
        block.buf[: len(SECRET)] = SECRET
        expect_success(register(server, f"/shortlist-own-{os.getpid()}", 64, "own"))
        region = {"shared_memory_region": "own", "shared_memory_byte_size": 8}
        context = {"name": "context", "shape": [1, DIM], "datatype": "FP32", "data": [[0.0] * DIM]}
        for name in ("ids", "allow", "ban"):
            wrong = {"name": name, "shape": [1, 1], "datatype": "INT64", "parameters": region}
            sentence = read_refusal(server.http.post("/v2/models/lm/infer", json={"inputs": [context, wrong]}))
            assert "holds an id that is no class" in sentence
            assert str(np.frombuffer(SECRET[:8], np.int64)[0]) not in sentence
            assert "TOPSECRT" not in sentence
    finally:
        server.http.post(f"{REGION}/own/unregister")
        block.close()
        block.unlink()


def test_it_is_for_this_machine_alone(small_repository):
    process = run_cli("serve", small_repository, "--host", "0.0.0.0", "--shared-memory")
    assert process.returncode == 2
    assert "listen on 127.0.0.1, not on 0.0.0.0" in process.stderr


def test_with_keys_only_an_administrator_forgets_the_regions_of_all(small_repository):
    secret = "s" * 20
    variables = {"SHORTLIST_API_KEYS": f"decoder ask {secret}"}
    with RunningServer(small_repository, "--shared-memory", variables=variables) as server:
        headers = {"Authorization": f"Bearer {secret}"}
        read_refusal(server.http.post("/v2/systemsharedmemory/unregister", headers=headers), 403)
        read_refusal(server.http.get("/v2/systemsharedmemory/status", headers=headers), 403)
        expect_success(server.http.post(f"{REGION}/own/unregister", headers=headers))
