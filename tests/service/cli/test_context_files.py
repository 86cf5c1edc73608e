"""Contexts and targets from npy and safetensors files."""

import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file
from shortlist.cli.context_files import read_contexts, read_targets
from shortlist.errors import BadInput, NotFound

FEW = np.ones((3, 4), np.float32)
TARGETS = np.random.default_rng(2).integers(0, 300, 150)


def test_targets_of_files(tmp_path):
    save_file({"targets": TARGETS.astype(np.int32)}, tmp_path / "y.safetensors")
    save_file({"other": TARGETS}, tmp_path / "none.safetensors")
    assert read_targets(tmp_path / "y.safetensors").tolist() == TARGETS.tolist()
    assert read_targets(tmp_path / "none.safetensors") is None
    np.save(tmp_path / "floats.npy", TARGETS * 1.0)
    np.save(tmp_path / "wide.npy", TARGETS[None])
    (tmp_path / "text.safetensors").write_text("no")
    for name in ("floats.npy", "wide.npy", "text.safetensors"):
        with pytest.raises(BadInput, match=name):
            read_targets(tmp_path / name)
    with pytest.raises(NotFound):
        read_targets(tmp_path / "absent.npy")


def test_a_folder_is_called_one(tmp_path):
    for read in (read_contexts, read_targets):
        with pytest.raises(BadInput, match="is a folder: give a file"):
            read(tmp_path)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_large_file_is_mapped_and_not_copied(tmp_path, dtype):
    rows = np.ones((1 << 16, 64), dtype)
    save_file({"contexts": rows}, tmp_path / "x.safetensors")
    tracemalloc.start()
    contexts = read_contexts(tmp_path / "x.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes / 8
    assert np.array_equal(contexts, rows)


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors"])
@pytest.mark.parametrize("read", [read_contexts, read_targets])
def test_a_file_that_may_not_be_read_is_not_called_another_kind_of_file(tmp_path, monkeypatch, name, read):
    """safetensors says itself that such a file is absent."""

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", name)

    np.save(tmp_path / "x.npy", FEW)
    save_file({"contexts": FEW, "targets": TARGETS}, tmp_path / "x.safetensors")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    monkeypatch.setattr("numpy.load", refuse)
    with pytest.raises(PermissionError, match=name):
        read(tmp_path / name)
