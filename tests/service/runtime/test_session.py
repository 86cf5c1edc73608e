import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import shortlist
from shortlist.errors import BundleError, DeviceError
from shortlist.runtime import devices, session
from shortlist.runtime.devices import import_onnxruntime, resolve_device
from shortlist.runtime.session import Graph, make_options


def test_cpu_by_default(monkeypatch):
    monkeypatch.delenv("SHORTLIST_DEVICE", raising=False)
    assert resolve_device(None) == "cpu"


def test_cuda_asked_for_and_absent_names_the_extra(monkeypatch, small_repository):
    for device in ("cuda", "cuda:0"):
        with pytest.raises(DeviceError, match=r"shortlist\[gpu\]"):
            resolve_device(device)
    monkeypatch.setenv("SHORTLIST_DEVICE", "cuda:1")
    with pytest.raises(DeviceError, match="cuda:1 was asked for"):
        shortlist.load(small_repository / "lm" / "1")


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "CPU"])
def test_no_device(device):
    with pytest.raises(DeviceError, match="is no device: use cpu or cuda:N"):
        resolve_device(device)


def test_threads_and_spinning_are_set():
    options = make_options(3, prepack=False)
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.disable_prepacking") == "1"


@pytest.mark.parametrize(("there", "error"), [(("onnxruntime", "onnxruntime-gpu"), True), (("onnxruntime",), False)])
def test_two_builds_of_onnx_runtime(monkeypatch, there, error):
    monkeypatch.setattr(devices, "is_installed", there.__contains__)
    devices.check_single_build.cache_clear()
    with pytest.raises(DeviceError, match="are both installed") if error else contextlib.nullcontext():
        import_onnxruntime()


def test_what_is_installed():
    assert devices.is_installed("onnxruntime")
    assert not devices.is_installed("onnxruntime-of-nobody")


@pytest.mark.parametrize(("said", "answer"), [({}, "1"), ({devices.TELEMETRY_VARIABLE: "0"}, "0")])
def test_onnx_runtime_reports_to_nobody_unless_it_is_told_to(monkeypatch, said, answer):
    monkeypatch.delenv(devices.TELEMETRY_VARIABLE, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    import_onnxruntime()
    assert os.environ[devices.TELEMETRY_VARIABLE] == answer


def test_loading_a_head_leaves_no_identifier_of_the_machine(small_repository, tmp_path):
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import shortlist, sys; shortlist.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, small_repository / "lm" / "1"], env=variables, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_is_none(tmp_path):
    (tmp_path / "dense.onnx").write_bytes(b"no graph")
    with pytest.raises(BundleError, match=r"cannot load .*dense.onnx \(.*[Pp]rotobuf.*\): export the bundle again"):
        Graph(tmp_path / "dense.onnx", "cpu", 1)


@pytest.mark.parametrize(("version", "operators", "why"), [(99, 21, "IR version: 99"), (10, 99, "till opset")])
def test_a_graph_that_is_newer_than_onnx_runtime(tmp_path, version, operators, why):
    node = onnx.helper.make_node("Identity", ["context"], ["logits"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("context", "logits")]
    graph = onnx.helper.make_graph([node], "dense", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", operators)], ir_version=version)
    onnx.save(model, tmp_path / "dense.onnx")
    with pytest.raises(BundleError, match=rf"cannot load .*\(.*{why}.*\): install a newer ONNX Runtime"):
        Graph(tmp_path / "dense.onnx", "cpu", 1)


def test_weights_are_mapped_not_copied(tmp_path):
    """Unpacked float32 weights stay file-backed: opening the graph twice costs no private memory."""
    from shortlist_exporter.graphs.dense import write_rows

    from tests.support.layers import make_dense

    dense = make_dense(200_000, 64)
    write_rows(tmp_path, dense)

    def private():
        text = Path("/proc/self/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty")) * 1024

    Graph(tmp_path / "rows.onnx", "cpu", 1)
    before = private()
    graphs = [Graph(tmp_path / "rows.onnx", "cpu", 1) for _ in range(4)]
    graphs[0](context=np.zeros((1, 64), np.float32), ids=np.zeros((1, 1), np.int64))
    assert private() - before < dense.weight.nbytes


def test_the_core_runs_and_without_one_the_session(tmp_path):
    from shortlist_exporter.graphs.dense import write_rows

    from tests.support.layers import make_dense

    dense = make_dense(40, 8)
    write_rows(tmp_path, dense)
    graph = Graph(tmp_path / "rows.onnx", "cpu", 1)
    inputs = {"context": np.ones((1, 8), np.float32), "ids": np.array([[3, 5]])}
    (expected,) = graph.session.run(None, inputs)
    np.testing.assert_array_equal(graph(**inputs)[0], expected)
    np.testing.assert_array_equal(graph.run_outputs(graph.outputs, inputs)[0], expected)
    with pytest.raises(Exception, match="nput"):
        graph(context=inputs["context"])
    plain = type("Session", (), {"run": lambda self, outputs, inputs, options=None: "ran"})()
    assert session.get_run(plain)([], {}, None) == "ran"
