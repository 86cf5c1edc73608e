"""HTTPS by two files, which are read again on SIGHUP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import time

import httpx
import pytest
import shortlist
import trustme
from shortlist.server.settings import FEWEST_CONNECTIONS, Settings
from shortlist.server.transport.connection import REFUSED_SECONDS
from shortlist.server.transport.tls import make_context
from shortlist.server.transport.uvicorn_protocol import HANDSHAKE_SECONDS

from tests.support.layers import RunningServer, make_contexts, run_cli

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


def write_certificate(authority, folder):
    """A certificate for 127.0.0.1 and its key, as the flags of a server."""
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    return "--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")


def read_serial(server, ca_file):
    """The serial number of the certificate that a new connection is shown."""
    host, port = server.url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, int(port)), timeout=10) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        return encrypted.getpeercert()["serialNumber"]


def wait_for_lines(server, words, count):
    for _ in range(200):
        if sum(words in line for line in server.log) >= count:
            return
        time.sleep(0.02)
    raise AssertionError("".join(server.log))


def test_answers_are_those_of_http_and_the_certificate_is_read_again(
    small_repository, small_server, authority, ca_file, tmp_path
):
    flags = write_certificate(authority, tmp_path)
    with RunningServer(small_repository, *flags, verify=ssl.create_default_context(cafile=ca_file)) as server:
        assert server.url.startswith("https://")
        with shortlist.Client(server.url, ca_file=ca_file) as client, shortlist.Client(small_server.url) as other:
            for _ in range(20):  # the fast path too
                top = client.topk("lm", ROWS, 3)
            assert top.ids.tolist() == other.topk("lm", ROWS, 3).ids.tolist()
        with (
            shortlist.Client(server.url) as client,
            pytest.raises(shortlist.errors.Unreachable, match=r"is not trusted \(.*certificate.*\): give ca_file"),
        ):
            client.topk("lm", ROWS, 3)
        with httpx.Client() as plain, pytest.raises(httpx.TransportError):
            plain.get(server.url.replace("https", "http") + "/healthz")
        first = read_serial(server, ca_file)
        # another certificate
        write_certificate(authority, tmp_path)
        server.process.send_signal(signal.SIGHUP)
        wait_for_lines(server, "the certificate: read again", 1)
        second = read_serial(server, ca_file)
        assert first != second
        # one that is wrong, and one whose key is another's
        (tmp_path / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        wait_for_lines(server, "what was in force stays", 1)
        authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(tmp_path / "key.pem")
        server.process.send_signal(signal.SIGHUP)
        wait_for_lines(server, "what was in force stays", 2)
        assert read_serial(server, ca_file) == second
        assert server.http.get("/readyz").status_code == 200, "the connection from before is still open"


def test_a_faulty_file_keeps_no_other_from_being_read_again(small_repository, authority, ca_file, tmp_path):
    keys, old, new = tmp_path / "keys", "o" * 16, "n" * 16
    keys.write_text(f"decoder ask {old}")
    flags = (*write_certificate(authority, tmp_path), "--api-keys-file", str(keys))
    with RunningServer(small_repository, *flags, verify=ssl.create_default_context(cafile=ca_file)) as server:
        first = read_serial(server, ca_file)
        # keys that are right beside a certificate that is wrong
        keys.write_text(f"decoder ask {new}")
        (tmp_path / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        wait_for_lines(server, "the certificate: not read again, what was in force stays", 1)
        wait_for_lines(server, "the API keys: read again", 1)
        with shortlist.Client(server.url, ca_file=ca_file, api_key=new) as client:
            assert client.topk("lm", ROWS, 3).ids.shape == (3, 3)
        assert read_serial(server, ca_file) == first
        # and the other way round
        keys.write_text("decoder ask short")
        write_certificate(authority, tmp_path)
        server.process.send_signal(signal.SIGHUP)
        wait_for_lines(server, "the API keys: not read again, what was in force stays", 1)
        wait_for_lines(server, "the certificate: read again", 1)
        assert read_serial(server, ca_file) != first
        with shortlist.Client(server.url, ca_file=ca_file, api_key=new) as client:
            assert client.topk("lm", ROWS, 3).ids.shape == (3, 3)
        assert not any(secret in line for line in server.log for secret in (old, new))


def test_old_protocols_are_refused(authority, tmp_path):
    flags = write_certificate(authority, tmp_path)
    context = make_context(Settings(tls_cert=flags[1], tls_key=flags[3]))
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("flags", [("--tls-cert", "cert.pem"), ("--tls-key", "key.pem")])
def test_one_file_alone_is_refused(small_repository, flags):
    process = run_cli("serve", small_repository, *flags)
    assert process.returncode == 2
    assert process.stderr.strip() == "shortlist serve: --tls-cert and --tls-key belong together: give both"


def test_files_that_are_no_certificate_stop_the_start(small_repository, tmp_path):
    for content in (None, "nothing"):
        if content is not None:
            (tmp_path / "cert.pem").write_text(content)
        flags = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "cert.pem", "--port", 0)
        process = run_cli("serve", small_repository, *flags)
        assert process.returncode == 1
        (line,) = process.stderr.strip().splitlines()
        assert "cert.pem cannot be used" in line
        assert "give two PEM files" in line


def test_a_connection_that_says_nothing_is_closed_soon(authority, small_repository, tmp_path):
    flags = write_certificate(authority, tmp_path)
    with RunningServer(small_repository, *flags, "--threads", "1", wait=False) as server:
        host, port = server.url.removeprefix("https://").split(":")
        start = time.monotonic()
        with socket.create_connection((host, int(port)), timeout=5 * HANDSHAKE_SECONDS) as connection:
            assert connection.recv(1) == b""
        assert time.monotonic() - start > HANDSHAKE_SECONDS / 2


def count_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_a_client_that_does_not_leave_when_refused_holds_no_file(authority, ca_file, small_repository, tmp_path):
    flags = (*write_certificate(authority, tmp_path), "--max-connections", str(FEWEST_CONNECTIONS))
    context = ssl.create_default_context(cafile=ca_file)
    with (
        RunningServer(small_repository, *flags, verify=context) as server,
        contextlib.ExitStack() as stack,
    ):
        host, port = server.url.removeprefix("https://").split(":")
        before = count_files(server)
        connections = []
        for _ in range(3 * FEWEST_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            connections.append(stack.enter_context(context.wrap_socket(connection, server_hostname=host)))
        assert connections[-1].recv(12) == b"HTTP/1.1 503"
        time.sleep(3 * REFUSED_SECONDS)
        assert count_files(server) - before <= FEWEST_CONNECTIONS


def test_a_client_that_does_not_leave_after_its_last_response_is_cut_off(
    authority, ca_file, small_repository, tmp_path
):
    """The event loop waits for 30 s, whatever --body-timeout says."""
    flags = (*write_certificate(authority, tmp_path), "--body-timeout", "1")
    context = ssl.create_default_context(cafile=ca_file)
    with RunningServer(small_repository, *flags, verify=context) as server:
        host, port = server.url.removeprefix("https://").split(":")
        before = count_files(server)
        with (
            socket.create_connection((host, int(port)), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname=host) as encrypted,
        ):
            encrypted.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert encrypted.recv(12) == b"HTTP/1.1 200"
            time.sleep(4)
            assert count_files(server) <= before
