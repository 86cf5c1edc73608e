"""`make bench-gpu`: what can be run without a GPU."""

import json
import sys

from benchmarks.common.truth import load_truth
from benchmarks.datasets.registry import DataSet
from benchmarks.studies import gpu
from tests.support.layers import make_contexts, make_dense, make_head


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "resolve_device", without_cuda)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 0
    output = capsys.readouterr().out
    assert output.startswith("nothing was measured, there is no GPU here: cuda:0 was asked for")
    assert len(output.splitlines()) == 1


def without_cuda(device):
    raise gpu.DeviceError(f"{device} was asked for but ONNX Runtime has no CUDA here")


def test_what_it_prints(tmp_path):
    """Rehearsed on the CPU: every contender at every batch, dense right by definition."""
    dense, sample = make_dense(), make_contexts(130, seed=7)
    data = DataSet(
        "small", dense, make_contexts(), load_truth(tmp_path / "t.safetensors", dense, sample.contexts, None)
    )
    options = {"basis": "context", "width": "8", "full_view": "80"}
    heads = {"svd-context": make_head(tmp_path, dense, options=options)}
    result = json.loads(json.dumps(gpu.compare_contenders(heads, data, "cpu", 128)))
    assert (result["rows"], result["device"]) == (128, "cpu")
    assert set(result["contenders"]) == {"dense", "svd-context", "svd-context, served"}
    for figures in result["contenders"].values():
        assert list(figures["us"]) == list(figures["times_dense"]) == [str(batch) for batch in gpu.GPU_BATCHES]
        assert min(figures["us"].values()) > 0
    assert result["contenders"]["dense"]["p1"] == 1.0
    assert set(result["contenders"]["dense"]["times_dense"].values()) == {1.0}
    assert result["contenders"]["svd-context"]["p5"] > 0.9
