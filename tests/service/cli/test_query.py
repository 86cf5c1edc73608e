"""`shortlist query` over files of any size: read, searched and written part by part."""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest
import shortlist
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from shortlist.cli import query
from shortlist.cli.context_files import open_contexts
from shortlist.cli.result_files import ArrayFile
from shortlist.errors import BadInput, NotFound, ShortlistError

from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=23, seed=8).contexts
MEGABYTE = 1 << 20


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(query, "PART_ROWS", 5)


def arguments(bundle, contexts, out=None, **others):
    values = {"bundle": bundle, "contexts": contexts, "out": out, "k": 4, "exact": False, "json": False}
    return Namespace(**values | {"device": "cpu", "threads": 1} | others)


def save(path, rows=ROWS):
    np.save(path, rows)
    return path


def read(path):
    if path.suffix == ".safetensors":
        return load_file(path)
    content = np.load(path)
    return {name: content[name] for name in ("ids", "logprobs", "scored")}


@pytest.mark.parametrize("name", ["out.npz", "out.safetensors", "out.npy"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.usefixtures("small_parts")
def test_parts_make_the_same_file_as_one_call(bundle, tmp_path, name, exact):
    query.run(arguments(bundle, save(tmp_path / "x.npy"), tmp_path / name, exact=exact))
    result, top = read(tmp_path / name), shortlist.load(bundle).topk(ROWS, 4, exact=exact)
    np.testing.assert_array_equal(result["ids"], top.ids)
    np.testing.assert_allclose(result["logprobs"], top.logprobs, atol=1e-5)
    np.testing.assert_array_equal(result["scored"], top.scored)
    assert [result[name].dtype for name in result] == [np.int64, np.float32, np.int32]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["x.npy", name])


@pytest.mark.usefixtures("small_parts")
def test_the_last_short_part_is_searched_by_the_plan_of_all_rows(bundle, tmp_path, monkeypatch):
    head = shortlist.load(bundle, threads=1)
    head.manifest = head.manifest.model_copy(update={"dense_crossover": 20})
    monkeypatch.setattr(query, "load", lambda *_, **__: head)
    query.run(arguments(bundle, save(tmp_path / "x.npy"), tmp_path / "out.npz"))
    assert (read(tmp_path / "out.npz")["scored"] == head.manifest.classes).all()


@pytest.mark.usefixtures("small_parts")
def test_json_holds_all_parts_and_the_table_the_first_rows(bundle, tmp_path, capsys):
    query.run(arguments(bundle, save(tmp_path / "x.npy"), json=True))
    assert capsys.readouterr().out.count('"word ') == 23 * 4
    query.run(arguments(bundle, tmp_path / "x.npy"))
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 1 + 20 * 4
    assert "3 more rows" in output.err


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_contexts_of_every_float_type(tmp_path, dtype):
    rows = torch.from_numpy(ROWS).to(dtype)
    save_file({"contexts": rows, "before": torch.ones(3), "z": torch.ones(1)}, tmp_path / "x.safetensors")
    contexts = open_contexts(tmp_path / "x.safetensors")
    assert (contexts.count, contexts.dim) == ROWS.shape
    np.testing.assert_array_equal(contexts.read_rows(7, 12), rows[7:12].to(torch.float32).numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.uint16, np.int8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_type_and_order(tmp_path, dtype, order):
    rows = np.abs(ROWS * 3).astype(dtype)
    contexts = open_contexts(save(tmp_path / "x.npy", np.asarray(rows, order=order)))
    np.testing.assert_array_equal(contexts.read_rows(20, 40), rows[20:].astype(np.float32))


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_no_rows(bundle, tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, ROWS[:0])
    else:
        save_file({"contexts": torch.from_numpy(ROWS[:0])}, path)
    query.run(arguments(bundle, path, tmp_path / "out.npy"))
    assert read(tmp_path / "out.npy")["ids"].shape == (0, 4)


def test_files_that_are_no_contexts(tmp_path):
    save_file({"other": torch.ones(2, 2)}, tmp_path / "other.safetensors")
    save_file({"contexts": torch.ones(2, 2, dtype=torch.int64)}, tmp_path / "whole.safetensors")
    save_file({"contexts": torch.ones(2, 2, 2)}, tmp_path / "three.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "other.safetensors").read_bytes()[:-1])
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", ROWS[0])
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    (tmp_path / "cut.npy").write_bytes(save(tmp_path / "good.npy").read_bytes()[:-1])
    (tmp_path / "good.npy").unlink()
    (tmp_path / "empty.npy").touch()
    for path in tmp_path.iterdir():
        with pytest.raises(BadInput, match=path.name):
            open_contexts(path)
    with pytest.raises(NotFound):
        open_contexts(tmp_path / "none.npy")


@pytest.mark.usefixtures("small_parts")
def test_a_row_that_is_not_finite_is_refused_and_leaves_nothing(bundle, tmp_path):
    rows = ROWS.copy()
    rows[13, 2] = np.nan
    with pytest.raises(BadInput, match=r"x\.npy, counted from row 10: contexts row 3 holds NaN"):
        query.run(arguments(bundle, save(tmp_path / "x.npy", rows), tmp_path / "out.npz"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.usefixtures("small_parts")
def test_a_row_that_is_not_finite_is_refused_before_any_row_is_searched(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(shortlist.head.Head, "run", lambda *_: pytest.fail("searched"))
    rows = ROWS.copy()
    rows[-1, 0] = np.inf
    with pytest.raises(BadInput, match="counted from row 20: contexts row 2 holds NaN or infinity"):
        query.run(arguments(bundle, save(tmp_path / "x.npy", rows), tmp_path / "out.npz"))


def test_wrong_arguments_are_refused_before_any_row_is_searched(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(shortlist.head.Head, "run", lambda *_: pytest.fail("searched"))
    contexts = save(tmp_path / "x.npy")
    before = contexts.read_bytes()
    with pytest.raises(BadInput, match=r"x\.npy is read, and what is written would replace it"):
        query.run(arguments(bundle, contexts, tmp_path / "." / "x.npy"))
    assert contexts.read_bytes() == before
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(BadInput, match=r"folder\.npz is a folder"):
        query.run(arguments(bundle, contexts, tmp_path / "folder.npz"))
    with pytest.raises(BadInput, match=r"x\.txt must end in \.npz, \.npy, \.safetensors"):
        query.run(arguments(bundle, contexts, tmp_path / "x.txt"))
    with pytest.raises(BadInput, match="k is 0"):
        query.run(arguments(bundle, contexts, tmp_path / "x.npz", k=0))
    with pytest.raises(BadInput, match=r"d = 15 but lm takes d = 16"):
        query.run(arguments(bundle, save(tmp_path / "y.npy", ROWS[:, 1:]), tmp_path / "x.npz"))
    with pytest.raises(ShortlistError, match="cannot be written"):
        query.run(arguments(bundle, contexts, tmp_path / "missing" / "x.npz"))


def test_a_disk_that_fills_leaves_the_earlier_file(tmp_path, monkeypatch):
    out = tmp_path / "out.npz"
    out.write_text("earlier")
    with ArrayFile(out, 2, {"ids": (np.dtype("<i8"), (3,))}) as file:
        file.add({"ids": np.ones((2, 3), np.int64)})
        monkeypatch.setattr("shutil.copyfileobj", full_disk)
        with pytest.raises(ShortlistError, match=r"out\.npz cannot be written: No space left"):
            file.finish()
    assert out.read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_two_runs_that_end_at_once_write_whole_files_each(tmp_path, monkeypatch):
    """They shared the file that becomes the output: the second took the first one's away."""
    first, second = (ArrayFile(tmp_path / "out.npz", 2, {"ids": (np.dtype("<i8"), (3,))}) for _ in range(2))
    copy = shutil.copyfileobj

    def end_second(*args):
        monkeypatch.setattr("shutil.copyfileobj", copy)
        second.finish()
        copy(*args)

    with first, second:
        first.add({"ids": np.ones((2, 3), np.int64)})
        second.add({"ids": np.zeros((2, 3), np.int64)})
        monkeypatch.setattr("shutil.copyfileobj", end_second)
        first.finish()
    assert np.load(tmp_path / "out.npz")["ids"].tolist() == [[1, 1, 1]] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def full_disk(*_):
    raise OSError(28, "No space left on device")


def test_a_disk_without_room_for_rows_and_file_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: Namespace(free=47_999_000_000))
    with pytest.raises(ShortlistError, match=r"out\.npz takes 48,000 MB of disk while it is written, but 47,999 MB"):
        ArrayFile(tmp_path / "out.npz", 10**9, {"ids": (np.dtype("<i8"), (3,))})
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("small_parts")
def test_progress_of_a_long_run(bundle, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(query, "LOG_PROGRESS_SECONDS", 0)
    query.run(arguments(bundle, save(tmp_path / "x.npy"), tmp_path / "out.npz"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" rows")[0] for line in lines[:-1]] == [
        f"shortlist query: {done} of 23" for done in (5, 10, 15, 20)
    ]
    assert "out.npz: 23 rows" in lines[-1]


PEAK = """
import resource, sys
from shortlist.cli import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def peak(*args):
    """Peak memory of a process that runs the query, in MB."""
    command = [sys.executable, "-c", PEAK, "query", *map(str, args)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    scale = 1 if sys.platform == "darwin" else 1024
    return int(process.stdout.splitlines()[-1]) * scale / MEGABYTE


def test_memory_does_not_grow_with_the_rows(bundle, tmp_path):
    few = np.lib.format.open_memmap(tmp_path / "few.npy", "w+", np.float32, (8_192, 16))
    many = np.lib.format.open_memmap(tmp_path / "many.npy", "w+", np.float32, (200_000, 16))
    few[:], many[:] = 1, 1
    out = tmp_path / "out.npy"
    options = ["-k", 40, "--threads", 1, "--exact", "--out", out]
    first = peak(bundle, "--contexts", tmp_path / "few.npy", *options)
    last = peak(bundle, "--contexts", tmp_path / "many.npy", *options)
    assert out.stat().st_size > 80 * MEGABYTE
    assert last < first + 40


def test_contexts_whose_scores_overflow_are_named_by_file_and_row(bundle, tmp_path, small_parts):
    rows = ROWS.copy()
    rows[7] = 3e38
    contexts = save(tmp_path / "x.npy", rows)
    with pytest.raises(
        BadInput, match=r"x\.npy, counted from row 5: contexts row 2 is so large that its scores overflow"
    ):
        query.run(arguments(bundle, contexts, tmp_path / "out.npz"))
