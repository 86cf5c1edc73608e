"""`shortlist query` and `shortlist check`."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import shortlist
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch
from shortlist.cli.context_files import read_contexts
from shortlist.cli.result_files import ArrayFile
from shortlist.errors import BadInput, NotFound

from tests.support.layers import call_cli, copy_writable, make_contexts, run_cli

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=23, seed=8).contexts


@pytest.fixture
def contexts(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    return tmp_path / "x.npy"


def one_line(process):
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1, process.stderr
    return process.stderr


def test_query_prints_a_table(bundle, contexts):
    process = run_cli("query", bundle, "--contexts", contexts, "-k", 2)
    lines = process.stdout.splitlines()
    best = shortlist.load(bundle).topk(ROWS, 2).ids
    assert process.returncode == 0
    assert lines[0].split() == ["row", "rank", "id", "log-prob", "share", "label"]
    assert [int(line.split()[2]) for line in lines[1:]] == best[:20].ravel().tolist()
    assert lines[1].endswith(f"'word {best[0, 0]}'")
    assert "3 more rows" in process.stderr


def test_query_prints_json(small_repository, contexts):
    process = call_cli("query", small_repository / "dense" / "1", "--contexts", contexts, "-k", 2, "--json")
    content = json.loads(process.stdout)
    assert content["ids"] == shortlist.load(small_repository / "dense" / "1").topk(ROWS, 2).ids.tolist()
    assert (content["model"], content["normalizer"], "labels" in content) == ("dense", "exact", False)


@pytest.mark.parametrize("name", ["out.npz", "out.safetensors"])
def test_query_writes_files(bundle, contexts, tmp_path, name):
    process = call_cli("query", bundle, "--contexts", contexts, "--exact", "--out", tmp_path / name)
    assert (process.returncode, process.stdout) == (0, "")
    result = dict(np.load(tmp_path / name)) if name.endswith("npz") else load_file(tmp_path / name)
    assert np.array_equal(result["ids"], shortlist.load(bundle).topk(ROWS, 5, exact=True).ids)


def test_query_refuses_in_one_line(bundle, contexts, tmp_path):
    assert "no file" in one_line(call_cli("query", bundle, "--contexts", tmp_path / "none.npy"))
    assert "k is 0" in one_line(call_cli("query", bundle, "--contexts", contexts, "-k", 0))
    assert ".npz" in one_line(call_cli("query", bundle, "--contexts", contexts, "--out", tmp_path / "x.txt"))
    assert "no bundle" in one_line(call_cli("query", tmp_path / "none" / "1", "--contexts", contexts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_contexts_of_every_float_type(tmp_path, dtype):
    rows = torch.from_numpy(ROWS).to(dtype)
    save_torch({"contexts": rows, "other": torch.ones(1)}, tmp_path / "x.safetensors")
    assert np.array_equal(read_contexts(tmp_path / "x.safetensors"), rows.to(torch.float32).numpy())


def test_files_without_contexts(tmp_path):
    save_file({"other": ROWS}, tmp_path / "other.safetensors")
    save_file({"contexts": ROWS.astype(np.int64)}, tmp_path / "whole.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "other.safetensors").read_bytes()[:50])
    (tmp_path / "text.npy").write_text("no")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", ROWS[0])
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    for path in tmp_path.iterdir():
        with pytest.raises(BadInput, match=path.name):
            read_contexts(path)
    with pytest.raises(NotFound):
        read_contexts(tmp_path / "none.npy")


def test_results_in_a_folder_that_is_missing(tmp_path):
    with pytest.raises(shortlist.ShortlistError, match="cannot be written"):
        ArrayFile(tmp_path / "missing" / "x.npz", len(ROWS), {"ids": (ROWS.dtype, ROWS.shape[1:])})


def test_check_prints_the_promise(bundle):
    process = run_cli("check", bundle)
    assert process.returncode == 0, process.stderr
    names = {line.split()[0] for line in process.stdout.splitlines()}
    assert {"files", "calibration", "p_at_1", "p_at_10", "cost_macs"} <= names


@pytest.mark.parametrize("damage", ["missing", "cut", "edited", "no manifest", "not JSON", "no folder"])
def test_check_fails_in_one_line(bundle, tmp_path, damage):
    copy = tmp_path / "lm" / "1"
    copy_writable(bundle, copy)
    graph, manifest = copy / "graphs" / "preview.onnx", copy / "manifest.json"
    {
        "missing": graph.unlink,
        "cut": lambda: graph.write_bytes(graph.read_bytes()[:-1]),
        "edited": lambda: graph.write_bytes(graph.read_bytes()[:-1] + b"\x00"),
        "no manifest": manifest.unlink,
        "not JSON": lambda: manifest.write_text("{"),
        "no folder": lambda: shutil.rmtree(copy),
    }[damage]()
    assert str(copy) in one_line(call_cli("check", copy))
