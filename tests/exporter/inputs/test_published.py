"""What other tools were attacked by through model files: each test names the published weakness."""

from __future__ import annotations

import ast
import io
import pickle
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import external_data_helper
from packaging.requirements import Requirement
from packaging.version import Version
from shortlist.errors import ShortlistError
from shortlist_exporter.inputs.formats.registry import READERS
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from tests.support.pickles import Trap

from .formats.layer import BIAS, SPELLINGS, save_onnx

ROOT = Path(__file__).resolve().parents[3]
# The oldest versions whose own flaws of reading tensors are mended: CVE-2025-32434; CVE-2026-27489, -34446 and -34447.
LEAST_VERSIONS = {"torch": "2.6", "onnx": "1.21"}
UNPICKLING = {"pickle", "cPickle", "joblib", "dill", "cloudpickle", "shelve"}  # modules that loads come from


def write_pickle(path, trap):
    path.write_bytes(pickle.dumps(trap))


def write_torch_zip(path, trap):
    torch.save({"weight": torch.ones(4, 3), "trap": trap}, path)


def write_old_torch(path, trap):
    torch.save(trap, path, _use_new_zipfile_serialization=False)


def write_object_array(path, trap):
    with path.open("wb") as file:
        np.save(file, np.array([trap], object), allow_pickle=True)


def write_object_arrays(path, trap):
    with zipfile.ZipFile(path, "w") as file:
        array = io.BytesIO()
        np.save(array, np.array([trap], object), allow_pickle=True)
        file.writestr("weight.npy", array.getvalue())


def write_tar(path, trap):
    """As torch saved once, whose reader unpickled whatever it was told."""
    content = pickle.dumps(trap)
    with tarfile.open(path, "w") as file:
        for name in ("pickle", "storages", "tensors", "sys_info"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))


WRITERS = (write_pickle, write_torch_zip, write_old_torch, write_object_array, write_object_arrays, write_tar)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("ending", READERS)
def test_vllm_pickles_in_what_is_loaded(tmp_path, ending, write):
    """Whatever a pickle is called and wrapped in, as weights, bias or contexts: none runs."""
    path, marker = tmp_path / f"weights{ending}", tmp_path / "ran"
    write(path, Trap(str(marker)))
    for load in (load_dense, load_contexts):
        with pytest.raises(ShortlistError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
    weight = tmp_path / "good.npy"
    np.save(weight, np.ones((4, 3), np.float32))
    with pytest.raises(ShortlistError):
        load_dense(weight, path)
    assert not marker.exists()


def test_the_trap_springs_where_it_is_unpickled(tmp_path):
    marker = tmp_path / "ran"
    pickle.loads(pickle.dumps(Trap(str(marker)))).close()
    assert marker.exists()


def list_calls():
    """Every call of the packages that are shipped, by the module it is in and its name with what it is called on."""
    for parent in ("service", "exporter", "models"):
        for path in (ROOT / parent).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    yield path.name, ast.unparse(node.func), {word.arg: word.value for word in node.keywords}


def test_nothing_that_unpickles_is_called():
    calls = list(list_calls())
    assert [call for call in calls if call[1].partition(".")[0] in UNPICKLING] == []
    loads = {name: [words for _, call, words in calls if call == name] for name in ("torch.load", "np.load")}
    assert all(loads.values())
    assert all(ast.unparse(words["weights_only"]) == "True" for words in loads["torch.load"])
    assert all(ast.unparse(words["allow_pickle"]) == "False" for words in loads["np.load"])
    trusting = [words["trust_remote_code"] for _, _, words in calls if "trust_remote_code" in words]
    assert [value for value in trusting if ast.unparse(value) != "False"] == []


@pytest.mark.parametrize("name", LEAST_VERSIONS)
def test_readers_of_tensors_are_new_enough(name):
    """In the lock, and in what pip is asked for without it."""
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line.startswith(f"{name}=")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    lines += {line for needs in extras.values() for line in needs if Requirement(line).name == name}
    versions = [Version(spec.version) for line in lines for spec in Requirement(line).specifier]
    assert len(versions) == 2
    assert min(versions) >= Version(LEAST_VERSIONS[name])


def link_softly(data, secret):
    data.unlink()
    data.symlink_to(secret)


def link_hard(data, secret):
    data.unlink()
    data.hardlink_to(secret)


def link_folder(data, secret):
    """The folder of the data is a link: only its last part was looked at once."""
    data.unlink()
    data.parent.rmdir()
    data.parent.symlink_to(secret.parent, target_is_directory=True)


@pytest.mark.parametrize("location", ["../secret.bin", "data/../../secret.bin", "{root}/secret.bin"])
def test_onnx_external_data_by_paths_that_leave_the_folder(tmp_path, location):
    path, secret = make_onnx(tmp_path)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor):
            entry = next(entry for entry in tensor.external_data if entry.key == "location")
            entry.value = location.format(root=secret.parent)
    onnx.save(model, path)
    with pytest.raises(ShortlistError, match=r"x\.onnx"):
        load_dense(path)


@pytest.mark.parametrize("link", [link_softly, link_hard, link_folder], ids=lambda link: link.__name__)
def test_onnx_external_data_by_links(tmp_path, link):
    path, secret = make_onnx(tmp_path)
    link(path.parent / "data" / "secret.bin", secret)
    with pytest.raises(ShortlistError, match=r"x\.onnx"):
        load_dense(path)


def make_onnx(root):
    """A model whose weights lie beside it in data/secret.bin, and the same bytes outside of its folder."""
    folder = root / "model"
    (folder / "data").mkdir(parents=True)
    nodes, weight = SPELLINGS["gemm"]
    where = {"save_as_external_data": True, "location": "data/secret.bin", "size_threshold": 0}
    path = save_onnx(folder / "x.onnx", nodes, {"W": weight, "b": BIAS}, **where)
    assert load_dense(path).weight.shape == weight.shape[::-1] or load_dense(path).weight.shape == weight.shape
    (root / "secret.bin").write_bytes((folder / "data" / "secret.bin").read_bytes())
    return path, root / "secret.bin"
