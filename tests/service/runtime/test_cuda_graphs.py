"""Bound buffers, on the CPU's memory; on a GPU's where there is one."""

import threading
from operator import attrgetter

import numpy as np
import pytest
import shortlist
from shortlist import head as head_module
from shortlist.bundle.reader import Bundle
from shortlist.errors import DeviceError
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head
from shortlist.runtime import session as runtime
from shortlist.runtime.cuda_graphs import BATCH_SIZES, FixedShapeSession
from shortlist.runtime.devices import import_onnxruntime
from shortlist.runtime.session import Graph

from tests.support.layers import DIM, make_contexts, make_dense, make_head

NO_GPU = "not run on a GPU: ONNX Runtime has no CUDA here"
rows = make_contexts(80).contexts
METHODS = {
    "full": {},
    "svd": {"basis": "context", "width": "8", "full_view": "40"},
    "l2s": {"clusters": "6", "budget": "40", "rounds": "0", "background": "0"},
}


@pytest.fixture
def graph(small_repository):
    return Graph(small_repository / "dense" / "1" / "graphs" / "dense.onnx", "cpu", 1)


@pytest.fixture
def cpu_rehearsal(monkeypatch):
    """`cuda:0` stands for the CPU: all that a GPU would run, but for CUDA."""
    monkeypatch.setattr(runtime, "check_provider", lambda session, device: None)
    monkeypatch.setattr(runtime, "parse_device", lambda device: ("cpu", 0))
    monkeypatch.setattr(runtime, "list_providers", lambda device, *, capture=False: ["CPUExecutionProvider"])
    monkeypatch.setattr(head_module, "resolve_device", lambda device: device)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 33, 64, 65, 80])
def test_equals_a_plain_run(graph, count):
    session = FixedShapeSession(graph.session, "cpu", 0)
    for part in (rows[:count], -rows[:count], rows[:count]):
        (result,), (plain,) = session(part), graph(context=part)
        assert result.shape == plain.shape
        np.testing.assert_allclose(result, plain, atol=1e-4)


def test_buffers_stay_where_they_are(graph):
    """One set for each size, whatever ran; a result is not overwritten by the next."""
    session = FixedShapeSession(graph.session, "cpu", 0)
    first = session(rows[:5])[0]
    copy, place = first.copy(), session.slots[8].context.data_ptr()
    session(rows[10:17])
    assert (first == copy).all()
    assert (set(session.slots), session.slots[8].context.data_ptr()) == ({8}, place)
    for count in range(1, 70):
        session(rows[:count])
    assert set(session.slots) == set(BATCH_SIZES)


def test_threads_take_turns(graph):
    session = FixedShapeSession(graph.session, "cpu", 0)
    wrong = []

    def ask(start):
        part = rows[start : start + 3]
        for _ in range(50):
            if not np.allclose(session(part)[0], graph(context=part)[0], atol=1e-4):
                wrong.append(start)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("method", METHODS)
def test_heads_over_bound_buffers_answer_as_others(tmp_path, cpu_rehearsal, method):
    on_cpu = make_head(tmp_path, make_dense(), make_contexts(), method=method, options=METHODS[method])
    bundle = Bundle(on_cpu.folder)
    bound = Head(bundle, "cuda:0", 1)
    check_canary(bound, bundle)
    graph = {"full": "single", "svd": "preview", "l2s": "router.screen"}[method]
    assert attrgetter(graph)(bound.plan).fixed is not None
    for count in (1, 7, 64, 70):
        ours, theirs = bound.topk(rows[:count], 5), on_cpu.topk(rows[:count], 5)
        assert (ours.ids == theirs.ids).all()
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)


def test_a_head_with_a_promise_is_loaded_for_another_device(promise_head, cpu_rehearsal):
    bundle = Bundle(promise_head.folder)
    bound = Head(bundle, "cuda:0", 1)
    assert bound.plan.compiled is None
    assert check_canary(bound, bundle) > 0.97


def test_another_device_has_a_crossover_of_its_own(tmp_path, cpu_rehearsal, monkeypatch):
    monkeypatch.setattr("shortlist.plans.common.crossover.dense_wins", lambda plan, dense, contexts, rows: rows >= 4)
    options = METHODS["svd"]
    with_fallback = make_head(tmp_path / "a", make_dense(), options=options, fallback=True)
    without_fallback = make_head(tmp_path / "b", make_dense(), options=options, fallback=False)
    assert Head(Bundle(with_fallback.folder), "cuda:0", 1).manifest.dense_crossover == 4
    assert Head(Bundle(without_fallback.folder), "cuda:0", 1).manifest.dense_crossover is None
    head = Head(Bundle(with_fallback.folder), "cuda:0", 1)
    assert set(head.topk(rows[:4], 2).scored) == {300}
    assert set(head.topk(rows[:3], 2).scored) == {40}


def test_a_graph_that_cannot_be_captured_is_opened_without(small_repository, monkeypatch):
    captures = []

    def providers(device, *, capture=False):
        captures.append(capture)
        return ["NoSuchExecutionProvider" if capture else "CPUExecutionProvider"]

    monkeypatch.setattr(runtime, "list_providers", providers)
    path = small_repository / "dense" / "1" / "graphs" / "dense.onnx"
    session = runtime.open_session(path, "cuda:0", runtime.make_options(1, prepack=False), capture=True)
    assert (captures, session.get_providers()) == ([True, False], ["CPUExecutionProvider"])


def test_cuda_is_asked_for_exact_products():
    ((name, settings), second) = runtime.list_providers("cuda:3", capture=True)
    assert (name, second) == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert settings == {"device_id": 3, "use_tf32": "0", "enable_cuda_graph": "1"}
    assert runtime.list_providers("cuda:0")[0][1]["enable_cuda_graph"] == "0"
    assert runtime.parse_device("cuda:3") == ("cuda", 3)


def test_a_session_that_came_up_on_the_cpu_is_refused(graph):
    with pytest.raises(DeviceError, match="cuda:0 could not be used"):
        runtime.check_provider(graph.session, "cuda:0")


@pytest.mark.parametrize("method", METHODS)
def test_on_a_gpu(tmp_path, method):
    if "CUDAExecutionProvider" not in import_onnxruntime().get_available_providers():
        pytest.skip(NO_GPU)
    on_cpu = make_head(tmp_path, make_dense(), make_contexts(), method=method, options=METHODS[method])
    on_gpu = shortlist.load(on_cpu.folder, device="cuda:0", threads=1)
    for count in (1, 7, 64, 70, 1, 7):
        np.testing.assert_array_equal(on_gpu.topk(rows[:count], 5).ids, on_cpu.topk(rows[:count], 5).ids)
    assert on_gpu.topk(np.zeros((1, DIM), np.float32), 1).ids.shape == (1, 1)
