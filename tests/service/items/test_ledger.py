"""Ledgers: several versions of a model, batches that come together, other models' logs."""

import os
import threading

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.errors import BundleError, NotReady, StorageFull, TooLarge
from shortlist.items import ledger as ledgers
from shortlist.items.batch import ItemBatch
from shortlist.items.ledger import Ledger
from shortlist.items.overlay import ItemOverlay
from shortlist.items.records import LogStart, read_records

from .writer import DIM, open_ledger

START = LogStart("lm", DIM, True, 0, {})


def make_batch(name, number=0, **numbered):
    return ItemBatch.make([name], np.full((1, DIM), number, np.float32), [], **numbered)


@pytest.fixture
def bundle(small_repository):
    return small_repository / "lm" / "1"


def test_batches_that_come_together_share_a_frame(bundle, tmp_path):
    ledger, overlay = open_ledger(bundle, tmp_path)
    with ledger.applying:  # the thread waits for it with the first of them
        futures = [ledger.submit(make_batch(f"n{number}", number)) for number in range(50)]
    assert [future.result().position for future in futures] == list(range(1, 51))
    ledger.close()
    records = list(read_records(ledger.path))
    assert len(records) < 10
    assert sum(len(record.batches) for record in records) == 50
    again, other = open_ledger(bundle, tmp_path)
    assert other.names.added == overlay.names.added == [f"n{number}" for number in range(50)]
    np.testing.assert_array_equal(other.table.vectors[:50], overlay.table.vectors[:50])
    again.close()


def test_a_version_that_comes_later_gets_all_changes(bundle, tmp_path):
    ledger, first = open_ledger(bundle, tmp_path)
    opened = Bundle(bundle, verify=False)
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            ledger.submit(make_batch(f"n{number}", number)).result()
            number += 1

    thread = threading.Thread(target=change)
    thread.start()
    others = [ItemOverlay(opened.manifest, opened.names(), position) for position in (0, 0, 0)]
    for other in others:
        ledger.attach(other)
    stop.set()
    thread.join()
    for other in others:
        assert other.position == first.position
        assert other.names.added == first.names.added
        np.testing.assert_array_equal(np.sort(other.snapshot.ids), np.sort(first.snapshot.ids))
    ledger.close()


def test_ledgers_of_several_processes_write_in_turn(bundle, tmp_path):
    both = [open_ledger(bundle, tmp_path, shared=True) for _ in range(2)]
    futures = [both[number % 2][0].submit(make_batch(f"n{number}", number)) for number in range(40)]
    assert sorted(future.result().position for future in futures) == list(range(1, 41))
    for _, overlay in both:
        assert overlay.read().size == 40
        assert overlay.position == 40
    assert both[0][1].names.added == both[1][1].names.added
    numbered = make_batch("once", source="feed", sequence=1)
    assert [ledger.submit(numbered).result().applied for ledger, _ in both] == [True, False]
    with pytest.raises(BundleError, match="written by another server"):
        open_ledger(bundle, tmp_path)
    for ledger, _ in both:
        ledger.close()
    again, overlay = open_ledger(bundle, tmp_path)
    assert overlay.names.added == both[0][1].names.added
    again.close()


def test_what_a_killed_process_wrote_in_part_is_cut_off_by_the_next(bundle, tmp_path):
    (first, overlay), (second, other) = (open_ledger(bundle, tmp_path, shared=True) for _ in range(2))
    first.submit(make_batch("a")).result()
    whole = first.path.read_bytes()
    with first.path.open("ab") as file:
        file.write(whole[-40:])
    assert other.read().size == 1
    assert second.submit(make_batch("b")).result().position == 2
    assert overlay.read().size == 2
    assert overlay.names.added == other.names.added == ["a", "b"]
    for ledger in (first, second):
        ledger.close()
    assert [len(record.batches) for record in read_records(first.path)] == [1, 1]


@pytest.mark.parametrize("change", [{"dim": 8}, {"names": False}, {"model": "other"}])
def test_a_log_of_other_items_is_refused_and_let_go_of(bundle, tmp_path, change):
    open_ledger(bundle, tmp_path)[0].close()
    path = tmp_path / "lm.items"
    before = os.listdir("/proc/self/fd")
    for shared in (False, True):
        with pytest.raises(BundleError, match=rf"holds changes of items with {next(iter(change))} .*: move it away"):
            Ledger(path, LogStart(**vars(START) | change), 0, shared=shared)
    assert os.listdir("/proc/self/fd") == before
    Ledger(path, START, 0).close()


def test_more_changed_items_than_a_search_bears_are_refused(bundle, tmp_path, monkeypatch):
    ledger, _ = open_ledger(bundle, tmp_path)
    monkeypatch.setattr(ledgers, "MAX_CHANGED_ITEMS", 1)
    ledger.submit(make_batch("a")).result()
    with pytest.raises(TooLarge, match="1 items are changed: fold them"):
        ledger.submit(make_batch("b"))
    ledger.close()
    with pytest.raises(NotReady, match="the server stops"):
        ledger.submit(ItemBatch.make([], np.empty((0, DIM), np.float32), ["a"]))


@pytest.mark.parametrize("shared", [False, True])
def test_a_log_that_was_moved_takes_no_changes_until_it_is_back(bundle, tmp_path, shared):
    """What is written to it would be acknowledged, and missing after the next start."""
    ledger, overlay = open_ledger(bundle, tmp_path, shared=shared)
    ledger.submit(make_batch("n0")).result()
    ledger.path.rename(tmp_path / "away")
    with pytest.raises(StorageFull, match=r"lm.items was moved or removed while .*: put it back, or start the server"):
        ledger.submit(make_batch("n1")).result()
    with pytest.raises(StorageFull, match="was moved or removed"):
        ledger.attach(overlay)
    (tmp_path / "away").rename(ledger.path)
    assert ledger.submit(make_batch("n1")).result().position == 2
    ledger.close()


def test_biases_and_keys_come_back_from_the_log():
    batch = ItemBatch.make(
        ["ü", "b"],
        np.arange(2 * DIM, dtype=np.float32).reshape(2, DIM),
        ["c"],
        biases=np.array([1.5, -2], np.float32),
        source="s",
        sequence=7,
    )
    content = batch.encode() * 2
    again, end = ItemBatch.decode(content, len(batch.encode()))
    assert end == len(content)
    assert (again.put, again.remove, again.source, again.sequence) == (["ü", "b"], ["c"], "s", 7)
    np.testing.assert_array_equal(again.vectors, batch.vectors)
    np.testing.assert_array_equal(again.biases, batch.biases)


def test_a_full_disk_is_logged_now_and_then(bundle, tmp_path, monkeypatch, caplog):
    ledger, _ = open_ledger(bundle, tmp_path)

    def refuse(*_):
        raise StorageFull("no room")

    monkeypatch.setattr(ledger.file, "append", refuse)
    for name in "abc":
        with pytest.raises(StorageFull, match="no room"):
            ledger.submit(make_batch(name)).result()
    ledger.close()
    assert [record.getMessage() for record in caplog.records] == ["changes could not be made: no room"]


def test_a_log_that_cannot_be_made_shorter_is_read_as_it_is(bundle, tmp_path, caplog):
    """Else a disk that is full at the start of a server would keep its model from answering."""
    ledger, _ = open_ledger(bundle, tmp_path)
    for number in range(9):
        ledger.submit(make_batch(f"n{number}")).result()
    ledger.close()
    size, in_the_way = ledger.path.stat().st_size, tmp_path / "lm.items.new"
    in_the_way.mkdir()
    again = Ledger(ledger.path, START, 9)
    again.close()
    assert (again.position, again.path.stat().st_size) == (9, size)
    assert "keeps changes that every version holds" in caplog.text
    in_the_way.rmdir()
    shorter = Ledger(ledger.path, START, 9)
    shorter.close()
    assert (shorter.position, shorter.start.position) == (9, 9)
    assert shorter.path.stat().st_size < size
