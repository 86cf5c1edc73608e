"""A Unix socket: who may connect, what is left of one, and what else lies at its path."""

from __future__ import annotations

import socket
import stat
import time

import httpx
import pytest
import shortlist
from shortlist.errors import BadInput
from shortlist.server.transport.listeners import listen_on_path

from tests.support.layers import RunningServer, make_contexts, run_cli

ROWS = make_contexts(rows=3, seed=5).contexts


def test_its_owner_and_group_may_connect(tmp_path):
    path = tmp_path / "s.sock"
    with listen_on_path(path, 5):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_what_a_killed_server_left_is_replaced(tmp_path):
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    stale = tmp_path / "stale.sock"
    stale.hardlink_to(path)  # so that no other file gets its inode
    with listen_on_path(path, 5), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert not path.samefile(stale)


def test_a_socket_in_use_and_other_files_are_left_alone(tmp_path):
    path = tmp_path / "s.sock"
    with listen_on_path(path, 5):
        with pytest.raises(BadInput, match=r"is in use by another server: choose another path with --unix-socket"):
            listen_on_path(path, 5).__enter__()
        assert path.is_socket()
    for make in (path.mkdir, lambda: (path.rmdir(), path.write_text("mine"))):
        make()
        with pytest.raises(BadInput, match=r"is there and is no socket"):
            listen_on_path(path, 5).__enter__()
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["no/such/folder.sock", "x" * 120])
def test_an_impossible_path_is_named(tmp_path, name):
    with pytest.raises(BadInput, match=r"cannot listen on .* \(.*\): choose another path with --unix-socket"):
        listen_on_path(tmp_path / name, 5).__enter__()


def test_a_server_that_took_the_place_keeps_its_file(tmp_path):
    path = tmp_path / "s.sock"
    with listen_on_path(path, 5) as first:
        first.close()  # as at the start of its end, when another server begins
        with listen_on_path(path, 5):
            pass
        second = listen_on_path(path, 5)
        second.__enter__()
    assert path.is_socket()
    second.__exit__(None, None, None)
    assert not path.exists()


@pytest.mark.slow
def test_one_server_answers_on_both(small_repository, tmp_path):
    path = tmp_path / "s.sock"
    with RunningServer(small_repository, "--unix-socket", str(path)) as server:
        with shortlist.Client(server.url) as client, shortlist.Client(server.unix_url) as unix:
            assert client.topk("lm", ROWS, 3).ids.tolist() == unix.topk("lm", ROWS, 3).ids.tolist()
            for _ in range(3):
                unix.topk("lm", ROWS, 3)
        assert f"listening on {server.unix_url}\n" in server.log
    assert not path.exists()


@pytest.mark.slow
def test_a_second_server_does_not_start_on_it(small_repository, small_server):
    path = small_server.unix_url.removeprefix("unix://")
    process = run_cli("serve", small_repository, "--port", 0, "--unix-socket", path)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith(
        "is in use by another server: choose another path with --unix-socket"
    )
    with shortlist.Client(small_server.unix_url) as client:
        assert client.ready()


@pytest.mark.slow
def test_without_tcp_there_is_the_socket_alone(small_repository, tmp_path):
    path = tmp_path / "s.sock"
    with RunningServer(small_repository, "--no-tcp", "--unix-socket", str(path), wait=False) as server:
        assert server.url == f"unix://{path}"
        with shortlist.Client(server.url, timeout=60) as client:
            for _ in range(300):
                if client.ready():
                    break
                time.sleep(0.1)
            assert client.topk("lm", ROWS, 3).ids.shape == (3, 3)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as other:
            assert other.get("http://localhost/v1/models").status_code == 200
            assert other.get("http://elsewhere.example/v1/models").status_code == 403


def test_without_tcp_and_socket_nothing_is_left(tmp_path):
    process = run_cli("serve", tmp_path, "--no-tcp")
    assert process.returncode == 2
    assert process.stderr == "shortlist serve: --no-tcp leaves nothing to listen on: give --unix-socket\n"
