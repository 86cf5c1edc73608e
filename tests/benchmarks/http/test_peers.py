"""A peer that cannot be measured is a row that says why; wrong answers are not timed."""

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import TopK
from shortlist.errors import ServerError
from shortlist_exporter.graphs import certificate

from benchmarks.common.processes import Process, free_port
from benchmarks.http import peers
from benchmarks.http.client.requests import Request, ResponseArrays, make_infer, read_infer
from benchmarks.http.client.wrk import Load
from benchmarks.http.servers import peer_servers
from benchmarks.http.servers.peer_servers import Launch, LitServe, MLServer, Peer, PeerSetup, Triton
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

IDS = np.array([[3, 1], [2, 0]])
TRUTH = TopK(IDS, np.array([[-1, -2], [-1, -3]], np.float32), np.array([9, 9], np.int32), "exact")
CONTEXTS = np.ones((2, 4), np.float32)


class Broken(Peer):
    name, requirement, title, protocol = "broken", "broken==0", "Broken 0", "none"

    def launch(self, place: PeerSetup) -> Launch:
        return Launch([sys.executable, "-c", "raise SystemExit('no such luck')"], free_port(), place.env)

    def make_request(self, context, k) -> Request:
        return Request("/", {}, context.tobytes())


def row_of(peer, tmp_path):
    place = PeerSetup(tmp_path / "venv", tmp_path / "files", tmp_path / "dense.onnx", 2)
    with ExitStack() as stack:
        return peers.start_peer(stack, tmp_path, peer, place, CONTEXTS, TRUTH)


def test_a_peer_that_cannot_be_installed_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(
        peer_servers, "run_command", lambda _: (_ for _ in ()).throw(ServerError("pip failed: no network"))
    )
    row = row_of(Broken(), tmp_path)
    assert row.process is None
    assert row.cells() == [
        "Broken 0", "dense layer", "none", "-", "-", "-", "-", "not measured: pip failed: no network"
    ]  # fmt: skip


def test_a_peer_that_ends_at_its_start_is_a_row_with_its_last_words(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "broken.stamp").touch()
    assert "broken ended at its start: no such luck" in row_of(Broken(), tmp_path).remark


def test_a_failed_command_is_told_by_its_last_line():
    with pytest.raises(ServerError, match="failed: nothing to do"):
        peer_servers.run_command([sys.executable, "-c", "raise SystemExit('first\\nnothing to do')"])


def test_answers_are_held_against_the_dense_layer():
    assert peers.check_exact(ResponseArrays(IDS, TRUTH.logprobs + 1e-4), TRUTH) == 1
    with pytest.raises(ServerError, match=r"P@1 0\.500"):
        peers.check_exact(ResponseArrays(np.array([[3, 1], [0, 2]]), TRUTH.logprobs), TRUTH)
    with pytest.raises(ServerError, match="off by up to"):
        peers.check_exact(ResponseArrays(IDS, TRUTH.logprobs + 1), TRUTH)


def test_a_measured_row_has_figures():
    row = peers.Row("Ours", "dense layer", "v2, binary", p1=0.99, load=Load(1234.5, 1500, 9900, 12000))
    assert row.cells()[3:] == ["1,234", "1.50", "9.90", "0.990", ""]


def test_what_peers_write_for_their_servers(tmp_path):
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    root = packages / "pytriton" / "tritonserver"
    (root / "backends" / "python").mkdir(parents=True)
    place = PeerSetup(tmp_path, tmp_path, tmp_path / "dense.onnx", 7)
    with pytest.raises(ServerError, match="no Python backend"):
        Triton(4).launch(place)
    stub = root / "python_backend_stubs" / f"3.{sys.version_info.minor}" / "triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.touch()
    launch = Triton(4).launch(place)
    assert f"--http-port={launch.port}" in launch.command
    assert "dims: [4]" in (tmp_path / "repository" / "dense" / "config.pbtxt").read_text()
    assert MLServer().launch(place).command[1] == "start"
    assert "mlserver_app.Dense" in (tmp_path / "model-settings.json").read_text()
    assert LitServe().launch(place).env["DENSE_K"] == "7"


def test_questions_and_answers_of_every_peer():
    for peer in (Triton(4), MLServer(), LitServe()):
        assert len({len(peer.make_request(row[None], 2).body) for row in CONTEXTS}) == 1
    body = b'{"outputs":[{"name":"ids","datatype":"INT64","shape":[1,2],"data":[3,1]},'
    body += b'{"name":"logprobs","datatype":"FP32","shape":[1,2],"data":[-1,-2]}]}'
    assert read_infer({}, body).ids.tolist() == [[3, 1]]
    assert LitServe().read_response({}, b'{"ids":[3,1],"logprobs":[-1,-2]}').logprobs.shape == (1, 2)
    with pytest.raises(ServerError, match="no infer response"):
        read_infer({}, b'{"error":"no"}')
    assert b"timeout" in make_infer("lm", CONTEXTS, 2, timeout=1000).body


def test_a_paused_process_is_stopped_too(tmp_path):
    code = "import time; print('up', flush=True); time.sleep(60)"
    with Process("sleeper", [sys.executable, "-c", code], 1, tmp_path) as process:
        assert process.memory_mib() > 0
        process.pause()
        with process.running():
            pass
    assert process.process.returncode is not None
    with pytest.raises(ServerError, match="ended under load"):
        process.memory_mib()


def test_one_that_does_not_bear_it_is_not_stopped(tmp_path):
    code = "import time; print('up', flush=True); time.sleep(60)"
    with Process("sleeper", [sys.executable, "-c", code], 1, tmp_path, pauses=False) as process:
        process.pause()
        assert "T (stopped)" not in Path(f"/proc/{process.process.pid}/status").read_text()


def test_our_own_rows_are_held_against_dense(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    options = {"method": "svd", "options": {"basis": "context", "width": "8", "full_view": "40"}}
    head = make_head(tmp_path / "head", make_dense(300, 16), make_contexts(dim=16), **options)
    contexts = make_contexts(dim=16, seed=4).contexts[:6]
    truth = head.run(head.dense, contexts, 3, UNRESTRICTED).topk("exact")
    with ExitStack() as stack:
        rows = peers.start_ours(stack, tmp_path, head.folder, head, contexts, truth)
        assert [row.answers for row in rows] == ["svd head", "dense layer, proved", "dense layer"]
        assert [row.p1 for row in rows[1:]] == [1.0, 1.0]
        assert rows[0].process is rows[1].process is not rows[2].process
        wrong = TopK(truth.ids, truth.logprobs + 1, truth.scored, "exact")
        with rows[2].process.running(), pytest.raises(ServerError, match="its answers are wrong"):
            peers.make_our_row(rows[2].process, "lm", "dense layer", contexts, wrong)
