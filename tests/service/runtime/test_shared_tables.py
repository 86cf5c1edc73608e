"""Tables that several processes share."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile

import numpy as np
import pytest
import shortlist
from shortlist.errors import StorageFull
from shortlist.kernels.primitives.layout import LINE_BYTES
from shortlist.runtime import shared_tables
from shortlist.runtime.shared_tables import FOLDER_PREFIX, make_tables_folder, share_table, share_tables_in

from tests.support.heads import grouped


@pytest.fixture
def folder(tmp_path):
    """Tables are shared there during a test."""
    share_tables_in(tmp_path)
    yield tmp_path
    share_tables_in(None)


def refuse():
    raise AssertionError("the table is there already")


def test_a_process_keeps_its_own_tables_by_default():
    table = np.arange(5)
    assert share_table("bundle", "codes", lambda: table) is table


def test_a_table_is_laid_out_once(folder):
    rows = np.random.default_rng(0).integers(0, 255, (7, 64), np.uint8)
    first = share_table("bundle", "codes", lambda: rows)
    second = share_table("bundle", "codes", refuse)
    assert np.array_equal(first, rows)
    assert np.array_equal(second, rows)
    assert first.flags.carray
    assert first.ctypes.data % LINE_BYTES == 0


def test_what_one_writes_into_its_table_is_not_seen_by_others(folder):
    first = share_table("bundle", "codes", lambda: np.zeros(9))
    first[:] = 1
    assert not share_table("bundle", "codes", refuse).any()


def test_tables_of_other_bundles_and_names_are_others(folder):
    tables = [share_table(*key, lambda key=key: np.array(key)) for key in (("a", "x"), ("a", "y"), ("b", "x"))]
    assert [tuple(table) for table in tables] == [("a", "x"), ("a", "y"), ("b", "x")]


def test_the_file_of_a_table_goes_with_its_last_part(folder):
    table = share_table("bundle", "codes", lambda: np.zeros(9))
    part = table[3:]
    del table
    assert len(list(folder.glob("*.npy"))) == 1
    del part
    assert list(folder.glob("*.npy")) == []


def test_a_folder_that_was_cleared_away_keeps_no_head_from_being_laid_out(folder, caplog):
    """No process that took another's place, and no new version, could be loaded any more."""
    first = share_table("bundle", "codes", lambda: np.arange(5))
    shutil.rmtree(folder)
    own = np.arange(5)
    assert share_table("bundle", "codes", lambda: own) is own
    assert share_table("bundle", "previews", lambda: own) is own
    assert np.array_equal(first, own)
    assert caplog.text.count("is gone: this process lays out tables of its own from now on") == 1


@pytest.mark.parametrize("kind", ["another user's", "link"])
def test_what_somebody_else_put_in_the_place_of_the_folder_is_not_read(folder, tmp_path_factory, monkeypatch, kind):
    share_table("bundle", "codes", lambda: np.zeros(5))
    own = np.arange(5)
    if kind == "link":
        folder.rename(other := tmp_path_factory.mktemp("other") / "moved")
        folder.symlink_to(other)
    else:
        monkeypatch.setattr(shared_tables.os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert share_table("bundle", "codes", lambda: own) is own


def test_what_an_ended_process_had_begun_is_not_read(folder):
    (folder / "bundle-codes.12345").write_bytes(b"half a table")
    (folder / "bundle-codes.lock").touch()
    assert share_table("bundle", "codes", lambda: np.ones(3)).all()


def test_a_folder_without_room_is_named_and_nothing_is_left_in_it(folder, monkeypatch):
    monkeypatch.setattr(np, "save", lambda file, table: file.write(b"half a table") and open_full())
    with pytest.raises(StorageFull, match=rf"a table of 24 bytes .* {folder} \(No space left on device\): make room"):
        share_table("bundle", "codes", lambda: np.ones(3))
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


def open_full():
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"1")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which servers make theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_server_left_goes_as_another_begins(temporary, monkeypatch):
    monkeypatch.setattr(shared_tables, "YOUNG_SECONDS", -1.0)
    left, other = temporary / f"{FOLDER_PREFIX}left", temporary / "shortlist-other"
    for each in (left, other):
        each.mkdir()
        (each / "codes.npy").touch()
    with make_tables_folder() as first, make_tables_folder() as second:
        assert set(temporary.iterdir()) == {first, second, other}
    assert list(temporary.iterdir()) == [other]


def test_a_folder_that_was_just_made_stays(temporary):
    made = temporary / f"{FOLDER_PREFIX}made"
    made.mkdir()
    with make_tables_folder():
        assert made.exists()


def hold_table(path, values, laid_out, wait):
    share_tables_in(path)

    def lay_out():
        laid_out.put(values)
        return np.full(1000, values)

    table = share_table("bundle", "codes", lay_out)
    wait.wait()
    laid_out.put(-int(table[0]))


@pytest.mark.slow
def test_processes_that_start_together_lay_out_one_table(tmp_path):
    context = multiprocessing.get_context("spawn")
    laid_out, wait = context.Queue(), context.Barrier(3)
    processes = [context.Process(target=hold_table, args=(tmp_path, value, laid_out, wait)) for value in (1, 2, 3)]
    for process in processes:
        process.start()
    values = [laid_out.get(timeout=30) for _ in range(4)]
    for process in processes:
        process.join(30)
    assert values[1:] == [-values[0]] * 3


def test_a_head_over_shared_tables_gives_the_same_answers(folder, grouped_head):
    contexts = grouped.contexts.contexts[:50]
    shared = shortlist.load(grouped_head.folder, threads=1)
    assert {path.stem.rpartition("-")[2] for path in folder.glob("*.npy")} >= {"codes", "previews"}
    one, other = grouped_head.topk(contexts, 10), shared.topk(contexts, 10)
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.logprobs, other.logprobs)
