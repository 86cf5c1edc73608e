"""What holds for files of every format."""

import pytest
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.inputs.sources import load_dense

from .layer import BIAS, SPELLINGS, WEIGHT, save_gguf, save_onnx, save_torch, tensors


def test_suffixes(tmp_path):
    (tmp_path / "x.h5").touch()
    with pytest.raises(BadInput, match=r"x\.h5 must end in \.safetensors, \.npy, .* Hugging Face folder"):
        load_dense(tmp_path / "x.h5")
    for name in ("x.pt", "x.onnx", "x.gguf", "folder"):
        with pytest.raises(NotFound, match=f"no file .*{name}"):
            load_dense(tmp_path / name)


@pytest.mark.parametrize("keep", [0, 3, 40, 0.5, -1])
@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".gguf"])
def test_cut_files(tmp_path, suffix, keep):
    path = tmp_path / f"x{suffix}"
    if suffix == ".pt":
        save_torch(path, tensors(weight=WEIGHT, bias=BIAS))
    elif suffix == ".onnx":
        save_onnx(path, SPELLINGS["gemm"][0], {"W": WEIGHT.T, "b": BIAS})
    else:
        save_gguf(path, {"output.weight": WEIGHT})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(BadInput, match=rf"x\{suffix}"):
        load_dense(path)


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".gguf"])
def test_files_of_another_kind(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_text("no tensors here, " * 100)
    with pytest.raises(BadInput, match=rf"x\{suffix}"):
        load_dense(path)
