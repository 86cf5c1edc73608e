import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.spool import SPOOL_FILE, STATE_FILE, Spool

ROWS, DIM = 11, 3
CONTEXTS = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
COLUMNS = {"targets": np.arange(ROWS), "documents": np.arange(ROWS, dtype=np.int32) // 4}


def open_spool(out, key="a", dtype="float32"):
    return Spool(out, key, COLUMNS, (ROWS, DIM), dtype, {"capture": key})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("stop", [0, 4, 8])
def test_a_spool_that_is_left_and_continued_is_a_whole_file(tmp_path, dtype, stop):
    out = tmp_path / "c.safetensors"
    spool = open_spool(out, dtype=dtype)
    for start in range(0, stop, 4):
        spool.add(CONTEXTS[start : start + 4])
    spool.close()
    spool = open_spool(out, dtype=dtype)
    assert spool.row_count == stop
    spool.add(CONTEXTS[stop:])
    spool.finish()
    tensors = load_file(out)
    np.testing.assert_array_equal(tensors["contexts"], CONTEXTS.astype(dtype))
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(tensors[name], values)
    assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]


def test_rows_written_but_not_noted_are_cut_off(tmp_path):
    spool = open_spool(tmp_path / "c")
    spool.add(CONTEXTS[:4])
    spool.file.write(b"half a row")
    spool.close()
    spool = open_spool(tmp_path / "c")
    assert spool.row_count == 4
    spool.add(CONTEXTS[4:])
    spool.finish()
    np.testing.assert_array_equal(load_file(tmp_path / "c")["contexts"], CONTEXTS)


def damaged_state(folder):
    (folder / STATE_FILE).write_text('{"key": "a", "do')


def shorter_file(folder):
    (folder / SPOOL_FILE).write_bytes((folder / SPOOL_FILE).read_bytes()[:-1])


def missing_file(folder):
    (folder / SPOOL_FILE).unlink()


def other_key(folder):
    (folder / STATE_FILE).write_text(json.dumps({"key": "b", "done": 4}))


@pytest.mark.parametrize("damage", [damaged_state, shorter_file, missing_file, other_key, shutil.rmtree])
def test_what_cannot_be_continued_starts_again(tmp_path, damage):
    spool = open_spool(tmp_path / "c")
    spool.add(CONTEXTS[:4])
    spool.close()
    damage(tmp_path / ".c.parts")
    spool = open_spool(tmp_path / "c")
    assert spool.row_count == 0
    spool.add(CONTEXTS)
    spool.finish()
    np.testing.assert_array_equal(load_file(tmp_path / "c")["contexts"], CONTEXTS)


def test_entries_of_columns_may_come_with_their_rows(tmp_path):
    columns = {"targets": np.zeros(ROWS, np.int64), "documents": COLUMNS["documents"]}
    for stop in (4, ROWS):
        spool = Spool(tmp_path / "c", "a", columns, (ROWS, DIM), "float32", {})
        part = slice(spool.row_count, stop)
        spool.add(CONTEXTS[part], {"targets": COLUMNS["targets"][part]})
        if stop < ROWS:
            spool.close()
    spool.finish()
    tensors = load_file(tmp_path / "c")
    np.testing.assert_array_equal(tensors["contexts"], CONTEXTS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(tensors[name], values)


def test_a_file_that_another_capture_writes_is_left_to_it(tmp_path):
    spool = open_spool(tmp_path / "c")
    for rows in (CONTEXTS[:4], CONTEXTS[4:8]):
        with pytest.raises(BadInput, match=r"another capture is writing .*c: wait until it has ended"):
            open_spool(tmp_path / "c")
        spool.add(rows)
    spool.close()
    spool = open_spool(tmp_path / "c")
    assert spool.row_count == 8
    spool.add(CONTEXTS[8:])
    spool.finish()
    np.testing.assert_array_equal(load_file(tmp_path / "c")["contexts"], CONTEXTS)
