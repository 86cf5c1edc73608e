"""A server on a real local Ray: the answers that it gives without, and what it says of a shard that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.fleet.shards.sharded_head import ShardedHead
from shortlist_exporter.export.shard import export_shards
from shortlist_exporter.graphs import builder

from tests.service.fleet.shards.test_sharded_head import CLASSES, DIM, make_tied_layer
from tests.support.layers import make_contexts, make_head
from tests.support.servers.ray import ROOT, RayServer, find_python, read_proc

CONTEXTS = make_contexts(rows=64, dim=DIM, seed=5).contexts
SHARDS = 3
RECOVERY_SECONDS = 30  # beside whatever else the machine does; `make bench-scale` measures it


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(builder, "INLINE_BYTES", 128)  # weights in files of their own, as larger layers have them
        whole = make_head(root, make_tied_layer(), make_contexts(dim=DIM), method="full", options={})
    export_shards(Bundle(whole.folder), SHARDS, root / "shards", threads=1)
    return root / "shards"


def ask(server, **fields):
    """The response to a request for the five best classes of `CONTEXTS`."""
    return server.http.post("/v1/topk", json={"model": "lm", "contexts": CONTEXTS.tolist(), "k": 5} | fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--item-changes", "changes"], "--item-changes cannot be had with --ray: two replicas write no log"),
        (["--processes", "2"], "--processes cannot be had with --ray: Ray has replicas"),
        (["--model-control", "explicit"], "--model-control explicit would reach one replica alone"),
    ],
)
def test_what_replicas_cannot_have_is_refused(folder, flags, reason):
    """A second replica waited for the first one's log for ever, and a rolling update with it."""
    command = [find_python(), "-m", "shortlist", "serve", str(folder), "--ray", *flags]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)])}
    outcome = subprocess.run(command, check=False, env=os.environ | paths, capture_output=True, text=True)
    assert outcome.returncode == 1
    assert reason in outcome.stderr


@pytest.mark.long
def test_shards_answer_and_a_killed_one_is_said_and_comes_back(folder):
    expected = ShardedHead.open(folder, threads=1).topk(CONTEXTS, 5)
    with RayServer(folder, "--shard-seconds", "0.5") as server:
        answer = ask(server).json()
        assert answer["ids"] == expected.ids.tolist()
        assert np.allclose(answer["logprobs"], expected.logprobs, atol=1e-5)
        assert server.http.get("/v1/models").json()["models"][0]["classes"] == CLASSES

        (pid,) = server.find_replicas("Shard2")
        assert b"RAY_USAGE_STATS_ENABLED=0" in read_proc(pid, "environ")  # Ray tells its makers nothing
        os.kill(pid, signal.SIGKILL)
        lost = ask(server)
        assert lost.status_code == 503
        assert "shard 2 of 3 of 'lm' did not answer within 0.5 s" in lost.json()["error"]
        part = ask(server, partial=True)
        assert part.status_code == 200
        assert 0.6 < part.json()["coverage"] < 0.7

        end = time.monotonic() + RECOVERY_SECONDS
        while (again := ask(server)).status_code != 200:
            assert again.status_code == 503
            assert time.monotonic() < end, again.text
        assert again.json()["ids"] == answer["ids"]
        assert ask(server, partial=True).json()["coverage"] == 1
