"""Regions of system shared memory: the class, and its routes in a real app that loads nothing."""

from __future__ import annotations

import os
import threading
from multiprocessing.shared_memory import SharedMemory as Block
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from shortlist.errors import BadInput
from shortlist.server.app import create_app
from shortlist.server.codecs.shared_memory import KEY_PREFIX, MAX_REGIONS, SharedMemory
from shortlist.server.settings import Settings

from tests.support.servers.responses import expect_success, read_refusal

SIZE = 64
FOLDER = Path("/dev/shm")


@pytest.fixture
def block():
    """64 bytes, 0 to 63, of shared memory that a client made."""
    block = Block(f"{KEY_PREFIX}block-{os.getpid()}", create=True, size=SIZE)
    block.buf[:SIZE] = bytes(range(SIZE))
    yield block
    block.close()
    block.unlink()


@pytest.fixture
def regions():
    regions = SharedMemory()
    yield regions
    regions.unregister()


@pytest.fixture
def path():
    """A name below /dev/shm that is free again afterwards."""
    path = FOLDER / f"shortlist-test-{os.getpid()}"
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def test_regions_are_read_and_written_where_they_lie(regions, block):
    regions.register("in", "/" + block.name, 8, 16)
    regions.register("all", block.name, 0, SIZE)
    assert regions.status("in") == [{"name": "in", "key": "/" + block.name, "offset": 8, "byte_size": 16}]
    assert [region["name"] for region in regions.status()] == ["in", "all"]
    assert regions.read("in", 2, 4).tolist() == [10, 11, 12, 13]
    regions.write("in", 15, b"\xff")
    assert block.buf[23] == 255
    assert regions.read("all", 0, SIZE).tobytes() == bytes(block.buf[:SIZE])
    assert regions.read("all", SIZE, 0).tobytes() == b""


def test_what_was_read_outlives_its_region(regions, block):
    regions.register("in", block.name, 0, SIZE)
    view = regions.read("in", 0, 4)
    block.buf[0] = 99
    regions.unregister("in")
    assert view.tolist() == [0, 1, 2, 3]
    with pytest.raises(BadInput, match="'in' is not registered"):
        regions.read("in", 0, 4)


@pytest.mark.parametrize(("offset", "size"), [(0, 17), (16, 1), (17, 0), (-1, 2), (0, -1), (2**70, 1), (True, 1)])
def test_outside_the_region(regions, block, offset, size):
    regions.register("in", block.name, 8, 16)
    with pytest.raises(BadInput, match="not inside"):
        regions.read("in", offset, size)
    if size >= 0:
        with pytest.raises(BadInput, match="not inside"):
            regions.write("in", offset, bytes(size))


@pytest.mark.parametrize(
    ("offset", "byte_size"), [(0, 0), (-1, 4), (0, -4), (0, True), (0, "8"), (0, 2**70), (2**70, 1), (0, None)]
)
def test_wrong_sizes(regions, block, offset, byte_size):
    with pytest.raises(BadInput):
        regions.register("in", block.name, offset, byte_size)
    assert regions.status() == []


def test_a_region_over_the_end_of_its_memory(regions, block):
    size = os.stat(FOLDER / block.name).st_size
    regions.register("in", block.name, size - 1, 1)
    with pytest.raises(BadInput, match="cannot be used"):
        regions.register("more", block.name, size - 1, 2)


@pytest.mark.parametrize(
    "key",
    ["", "/", "..", "/..", ".", "a/b", "/../etc/passwd", "//x", "/a\0b", "x" * 300, 7, None, "/nope", "\ud800",
     "shortlist-", "/shortlist-../x", "/shortlist-a/b", "shortlist-a\0b", f"/shortlist-{'x' * 300}", "psm"],
)  # fmt: skip
def test_keys_that_may_not_be_registered(regions, key):
    with pytest.raises(BadInput, match="may not be registered"):
        regions.register("in", key, 0, 1)


def refusal_of(regions, path):
    with pytest.raises(BadInput) as caught:
        regions.register("in", path.name, 0, 1)
    return str(caught.value).replace(path.name, "KEY")


def test_what_cannot_be_used_is_refused_without_a_reason(regions, path):
    """Not even whether it exists, and how large it is."""
    sentences = [refusal_of(regions, path)]
    path.symlink_to("/etc/passwd")
    sentences.append(refusal_of(regions, path))
    path.unlink()
    path.mkdir()
    sentences.append(refusal_of(regions, path))
    path.rmdir()
    os.mkfifo(path)
    sentences.append(refusal_of(regions, path))
    path.unlink()
    path.write_bytes(b"")
    sentences.append(refusal_of(regions, path))
    path.write_bytes(bytes(SIZE))
    other = path.with_name(f"{path.name}-second")
    other.hardlink_to(path)
    sentences.append(refusal_of(regions, path))
    other.unlink()
    regions.register("in", path.name, 0, 1)
    assert len(set(sentences)) == 1
    assert "must exist, belong to the server's user and hold" in sentences[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_memory_of_another_user_is_not_reached(regions, path):
    path.write_bytes(bytes(SIZE))
    path.chmod(0o666)
    os.chown(path, 65534, 65534)
    assert "cannot be used" in refusal_of(regions, path)


def test_memory_that_shrinks_harms_nobody(regions, path):
    path.write_bytes(bytes(SIZE))
    regions.register("in", path.name, 0, SIZE)
    os.truncate(path, 8)
    for use in (lambda: regions.read("in", 0, SIZE), lambda: regions.write("in", 0, bytes(SIZE))):
        with pytest.raises(BadInput, match="made smaller"):
            use()
    assert path.stat().st_size == 8
    assert regions.read("in", 0, 8).tobytes() == bytes(8)


def test_names_are_registered_once_and_unregistered_any_time(regions, block):
    regions.register("in", block.name, 0, 8)
    with pytest.raises(BadInput, match="registered already"):
        regions.register("in", block.name, 0, 8)
    regions.unregister("in")
    regions.unregister("in")
    regions.register("in", block.name, 0, 8)
    regions.unregister()
    assert regions.status() == []


def test_no_file_stays_open_and_no_more_than_the_limit(regions, block):
    before = len(os.listdir("/proc/self/fd"))
    for number in range(MAX_REGIONS):
        regions.register(str(number), block.name, 0, 8)
    with pytest.raises(BadInput, match="unregister one first"):
        regions.register("one more", block.name, 0, 8)
    regions.unregister()
    with pytest.raises(BadInput):
        regions.register("in", block.name, 0, 2**40)
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_read_while_others_register(regions, block):
    regions.register("in", block.name, 0, SIZE)
    wrong = []

    def read():
        for _ in range(300):
            if regions.read("in", 1, 3).tolist() != [1, 2, 3]:
                wrong.append(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        regions.register("other", block.name, 0, 8)
        regions.unregister("other")
    for thread in threads:
        thread.join()
    assert not wrong


BASE = "/v2/systemsharedmemory"


def client_of(repository, **settings):
    return TestClient(create_app(Settings(repository=repository, **settings)), raise_server_exceptions=False)


@pytest.fixture
def client(small_repository):
    return client_of(small_repository, shared_memory=True)


def test_routes(client, block):
    region = {"key": "/" + block.name, "offset": 4, "byte_size": 8}
    assert client.get(f"{BASE}/status").json() == []
    expect_success(client.post(f"{BASE}/region/in/register", json=region))
    expect_success(client.post(f"{BASE}/region/out/register", json=region | {"offset": 12}))
    assert client.get(f"{BASE}/region/in/status").json() == [{"name": "in"} | region]
    assert [entry["name"] for entry in client.get(f"{BASE}/status").json()] == ["in", "out"]
    expect_success(client.post(f"{BASE}/region/in/unregister"))
    read_refusal(client.get(f"{BASE}/region/in/status"))
    expect_success(client.post(f"{BASE}/unregister"))
    assert client.get(f"{BASE}/status").json() == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"{", b'{"key": "/x"}', b'{"key": 1, "byte_size": 1}', b'{"key": "/..", "byte_size": 1}'],
)
def test_wrong_registrations(client, body):
    read_refusal(client.post(f"{BASE}/region/in/register", content=body))


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/status"),
        ("GET", "/region/in/status"),
        ("POST", "/region/in/register"),
        ("POST", "/region/in/unregister"),
        ("POST", "/unregister"),
    ],
)
def test_off_by_default(small_repository, verb, path):
    assert "--shared-memory" in read_refusal(client_of(small_repository).request(verb, BASE + path))


@pytest.mark.parametrize(
    ("verb", "path"), [("GET", "/status"), ("POST", "/region/in/register"), ("POST", "/unregister")]
)
def test_cuda_shared_memory_is_not_served(client, verb, path):
    assert "CUDA" in read_refusal(client.request(verb, "/v2/cudasharedmemory" + path), 501)
