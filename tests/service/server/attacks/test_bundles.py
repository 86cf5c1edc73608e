"""Bundles that lie beside bundles that do not: a real server serves the latter, and says what is wrong with others."""

from __future__ import annotations

import re
import stat
import subprocess
import time

import numpy as np
import pytest
import shortlist

from tests.service.server.attacks.bad_bundles import ATTACKS, reseal
from tests.support.layers import RunningServer, copy_writable, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts
GOOD = ("aa", "zz")  # before and after all others
WAITS = 200  # of .05 s


def wait_for(look, enough):
    """What `look` returns, once that is enough."""
    for _ in range(WAITS):
        value = look()
        if enough(value):
            return value
        time.sleep(0.05)
    raise AssertionError(value)


def read_states(server):
    return {
        model["name"]: (model["state"], model["reason"]) for model in server.http.get("/v1/models").json()["models"]
    }


@pytest.fixture(scope="module")
def states(small_repository, tmp_path_factory):
    """What became of every bundle, and the server's log."""
    repository = tmp_path_factory.mktemp("attacked") / "repository"
    for name in (*GOOD, *(attack.__name__ for attack in ATTACKS)):
        copy_writable(small_repository / "dense" / "1", repository / name / "1")
    for attack in ATTACKS:
        attack(repository / attack.__name__ / "1")
    with RunningServer(repository, "--threads", "1", wait=False) as server:
        states = wait_for(
            lambda: read_states(server), lambda states: all(state != "loading" for state, _ in states.values())
        )
        with shortlist.Client(server.url) as client:
            for name in GOOD:
                assert client.topk(name, ROWS, 2).ids.shape == (3, 2)
            for attack in ATTACKS:
                with pytest.raises(shortlist.errors.NotReady):
                    client.topk(attack.__name__, ROWS, 2)
        log = list(server.log)
    return states, log


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_bad_bundle_is_refused_in_a_sentence(states, attack):
    state, reason = states[0][attack.__name__]
    assert state == "failed"
    assert ATTACKS[attack] in reason
    assert reason.isprintable()


def test_the_bundles_around_them_are_served_and_nobody_writes_into_the_log(states):
    assert [states[0][name] for name in GOOD] == [("ready", None)] * 2
    lines = [
        line for line in states[1] if not re.match(r"listening on |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ", line)
    ]
    assert lines == [], "every line has the form of the log, and no traceback stands between them"


def test_a_next_version_that_lies_about_its_addresses_leaves_the_first_in_service(tmp_path):
    """Compiled loops took such numbers as addresses: POST load ended the whole server."""
    folder = make_head(tmp_path, make_dense(), method="cascade", options={}).folder
    worse = copy_writable(folder, folder.with_name("2"))
    from safetensors.numpy import load_file, save_file

    arrays = load_file(worse / "index.safetensors")
    save_file(arrays | {"order": arrays["order"] + 2**33}, worse / "index.safetensors")
    reseal(worse, version=2)
    with RunningServer(tmp_path, "--model-control", "explicit", wait=False) as server:
        for _ in range(2):
            response = server.http.post("/v2/repository/models/lm/load")
            assert response.status_code == 500
            assert "holds id 8589" in response.json()["error"]
        versions = [version["state"] for version in server.http.get("/v1/models/lm").json()["versions"]]
        assert versions == ["ready", "failed"]
        with shortlist.Client(server.url) as client:
            assert client.topk("lm", ROWS, 2).ids.shape == (3, 2)


def read_canary(server):
    text = server.http.get("/metrics").text
    (value,) = re.findall(r'^shortlist_canary\{model="dense",version="1"\} (\S+)$', text, re.M)
    return float(value)


def rewrite(path):
    """Other numbers in place, as `cp` and `rsync --inplace` write them."""
    numbers = np.fromfile(path, np.float32)
    numbers[::-1].copy().tofile(path)


def cut(path):
    """What is mapped ends here: touching the rest ends the process, so the canary must not."""
    path.write_bytes(b"")


def remove(path):
    path.unlink()


@pytest.mark.parametrize("change", [rewrite, cut, remove])
def test_files_that_change_while_they_are_served_are_noticed(small_repository, tmp_path, change):
    copy_writable(small_repository / "dense" / "1", tmp_path / "dense" / "1")
    with RunningServer(tmp_path, "--canary-seconds", "0.1") as server:
        time.sleep(0.3)
        assert read_canary(server) == 1
        change(max((tmp_path / "dense" / "1" / "graphs").glob("*.bin"), key=lambda path: path.stat().st_size))
        wait_for(lambda: read_canary(server), lambda value: value == 0)
        wait_for(lambda: server.log, lambda log: any("was changed or removed since" in line for line in log))
        assert server.process.poll() is None


def test_an_export_cannot_be_written_over_and_can_be_deleted(tmp_path):
    folder = make_head(tmp_path, make_dense(), report=True).folder
    for path in folder.rglob("*"):
        writable = stat.S_IMODE(path.stat().st_mode) & 0o222
        assert bool(writable) == (path.is_dir() or "report" in path.parts), path
    subprocess.run(["rm", "-r", folder], check=True, stdin=subprocess.DEVNULL)
    assert not folder.exists()
