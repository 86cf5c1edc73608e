"""Several processes as one server: deaths, signals, swaps, and what each gets to do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import shortlist
import trustme

from tests.support.layers import copy_writable, make_contexts, run_cli
from tests.support.servers.fleet import Clients, Fleet, ask
from tests.support.servers.swaps import Load, put_version, wait_for_version

pytestmark = pytest.mark.slow

CONTEXTS = make_contexts(rows=16, seed=7).contexts
QUICK = ("--drain-delay", "0.3", "--drain-seconds", "5")


@pytest.fixture(scope="module")
def fleet(small_repository):
    with Fleet(small_repository, *QUICK) as server:
        yield server


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_connections_go_to_the_process_with_the_fewest(fleet):
    connections = [fleet.connect() for _ in range(8)]
    for connection in connections:
        assert ask(connection, "GET", "/healthz")[0] == 200
    descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in fleet.list_pids().values()]
    for connection in connections:
        connection.close()
    assert abs(descriptors[0] - descriptors[1]) <= 2


def test_connections_that_say_nothing_are_spread_too_where_tls_waits_for_them(small_repository, tmp_path):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    flags = "--tls-cert", str(tmp_path / "both.pem"), "--tls-key", str(tmp_path / "both.pem")
    with Fleet(small_repository, *QUICK, *flags, verify=False) as server:
        server.wait_for_processes(2)
        connections = [server.connect() for _ in range(12)]
        for connection in connections:
            connection.connect()
            time.sleep(0.1)  # the supervisor knows by then what each process has
        descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in server.list_pids().values()]
        for connection in connections:
            connection.close()
    assert abs(descriptors[0] - descriptors[1]) <= 3


def test_counters_of_all_processes_add_up_and_do_not_fall_when_one_is_killed(fleet):
    before = fleet.read_metric("shortlist_requests_total", endpoint="topk")
    with Clients(fleet, CONTEXTS, 4) as clients:
        time.sleep(0.5)
    count = fleet.read_metric("shortlist_requests_total", endpoint="topk")
    assert count - before == sum(clients.answers) > 10
    os.kill(fleet.list_pids()[1], signal.SIGKILL)
    fleet.wait_for_processes(2)
    assert fleet.read_metric("shortlist_requests_total", endpoint="topk") == count
    fleet.wait_until(lambda: fleet.read_metric("shortlist_process_replacements_total") >= 1)


@pytest.mark.alone  # beside other tests connections may be spread less evenly than is asked here
def test_who_is_killed_under_load_takes_nobody_with_it_and_is_replaced(fleet):
    fleet.wait_for_processes(2)
    pids = fleet.list_pids()
    with Clients(fleet, CONTEXTS, 6) as clients:
        time.sleep(0.5)
        os.kill(pids[0], signal.SIGKILL)
        assert fleet.http.get("/readyz").status_code == 200
        assert fleet.read_metric("shortlist_ready") == 1
        time.sleep(0.5)
        fleet.wait_for_processes(2)
        time.sleep(0.3)
    failures = [len(each) for each in clients.failures]
    assert set(failures) == {0, 1}, clients.failures  # connections that were just closed may still be counted
    assert 2 <= sum(failures) <= 4, clients.failures
    assert clients.wrong == []
    assert fleet.list_pids()[0] != pids[0]
    assert fleet.list_pids()[1] == pids[1]


def test_sigterm_of_one_process_lets_it_finish_and_another_takes_its_place(fleet):
    fleet.wait_for_processes(2)
    pids = fleet.list_pids()
    with Clients(fleet, CONTEXTS, 4) as clients:
        time.sleep(0.3)
        os.kill(pids[1], signal.SIGTERM)
        while is_alive(pids[1]):
            time.sleep(0.05)
        fleet.wait_for_processes(2)
    assert clients.wrong == []
    assert sum(map(len, clients.failures)) == 0, clients.failures


def test_sigterm_drains_all(small_repository):
    with Fleet(small_repository, *QUICK) as server:
        server.wait_for_processes(2)
        pids = server.list_pids().values()
        with Clients(server, CONTEXTS, 4) as clients:
            time.sleep(0.3)
            server.process.terminate()
            assert server.process.wait(timeout=20) == 0
        assert not any(map(is_alive, pids))
    assert clients.wrong == []
    errors = {error for each in clients.failures for error in each}
    assert {error.partition("(")[0] for error in errors} == {"ConnectionRefusedError"}, errors


def find_parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("to_all", [False, True])
def test_connections_are_accepted_during_the_drain_delay(small_repository, to_all):
    """Also where the signal goes to all processes, as systemd sends it."""
    with Fleet(small_repository, "--drain-delay", "2", "--drain-seconds", "5") as server:
        server.wait_for_processes(2)
        pids = list(server.list_pids().values())
        for pid in [find_parent(pids[0]), *pids] if to_all else ():
            os.kill(pid, signal.SIGTERM)
        server.process.terminate()
        time.sleep(0.7)
        for _ in range(4):
            connection = server.connect()
            assert ask(connection, "GET", "/readyz")[0] == 503
            body = {"model": "lm", "contexts": CONTEXTS[:1].tolist(), "k": 3}
            assert ask(connection, "POST", "/v1/topk", body)[0] == 200
            connection.close()
        assert server.process.wait(timeout=20) == 0


def test_ctrl_c_ends_all(small_repository):
    with Fleet(small_repository) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=20) == 0
        assert not any(map(is_alive, server.list_pids().values()))


def test_processes_end_with_their_supervisor(small_repository):
    with Fleet(small_repository, *QUICK) as server:
        server.process.kill()
        end = time.monotonic() + 15
        while any(map(is_alive, server.list_pids().values())):
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_new_version_is_served_by_all_without_a_failure(small_repository, tmp_path):
    bundle = small_repository / "lm" / "1"
    copy_writable(bundle, tmp_path / "lm" / "1")
    with Fleet(tmp_path, "--model-control", "poll", "--poll-seconds", "0.2") as server:
        server.wait_for_processes(2)
        with Load(server.url, [bundle], CONTEXTS, 3) as load:
            put_version(bundle, tmp_path / "lm", 2)
            wait_for_version(server, 2)
            time.sleep(1)
            load.versions.clear()
            time.sleep(1)
        assert load.failures == load.strays == []
        assert load.versions == {2}


def test_sighup_reaches_all(small_repository, tmp_path):
    bundle = small_repository / "lm" / "1"
    copy_writable(bundle, tmp_path / "lm" / "1")
    with Fleet(tmp_path) as server:
        put_version(bundle, tmp_path / "lm", 2)
        server.process.send_signal(signal.SIGHUP)
        wait_for_version(server, 2)
        time.sleep(0.5)
        assert {read_version(server) for _ in range(6)} == {2}


def read_version(server):
    connection = server.connect()
    _, model = ask(connection, "GET", "/v1/models/lm")
    connection.close()
    return model["version"]


def test_what_keeps_one_from_beginning_is_said_once(tmp_path):
    process = run_cli("serve", tmp_path, "--port", 0, "--processes", 2)
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1, process.stderr
    assert str(tmp_path) in process.stderr


def test_a_unix_socket_serves_over_all(small_repository, tmp_path):
    path = tmp_path / "s.sock"
    with Fleet(small_repository, "--unix-socket", str(path)) as server:
        for _ in range(4):
            with shortlist.Client(f"unix://{path}") as client:
                assert client.topk("lm", CONTEXTS[:2], 3).ids.shape == (2, 3)
        assert path.is_socket()
    assert not path.exists()
    assert server.process.returncode == 0


def test_who_hangs_is_killed_and_replaced_and_others_answer_meanwhile(small_repository):
    with Fleet(small_repository, *QUICK, "--hang-seconds", "5") as server:
        server.wait_for_processes(2)
        pids = server.list_pids()
        os.kill(pids[0], signal.SIGSTOP)
        time.sleep(3.5)  # connections go to it until it falters
        for _ in range(4):
            connection = server.connect()
            assert ask(connection, "GET", "/healthz")[0] == 200
            connection.close()
        server.wait_for_processes(2)
        end = time.monotonic() + 60
        while server.list_pids()[0] == pids[0]:
            assert time.monotonic() < end, "".join(server.log)
            time.sleep(0.1)
        assert not is_alive(pids[0])
        assert server.list_pids()[1] == pids[1]
        assert "has done nothing for" in "".join(server.log)


def test_what_a_killed_process_counted_is_kept_though_nobody_had_asked(small_repository):
    with Fleet(small_repository, *QUICK) as server:
        server.wait_for_processes(2)
        with Clients(server, CONTEXTS, 4) as clients:
            time.sleep(0.5)
        time.sleep(2.5)  # beats are a second apart
        for pid in server.list_pids().values():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        server.wait_for_processes(2)
        assert server.read_metric("shortlist_requests_total", endpoint="topk") == sum(clients.answers) > 10
