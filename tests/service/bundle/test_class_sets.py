import zlib

import numpy as np
import pytest
from shortlist.bundle import class_sets
from shortlist.bundle.class_sets import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    MAX_REQUEST_SETS,
    ClassSets,
    delete_set,
    list_set_names,
    make_path,
    pack_set,
    read_set,
    write_set,
)
from shortlist.errors import BadInput, BundleError, NotFound

from tests.service.runtime.forks import run_forked

CLASSES = 1000
SHOES, RED = np.arange(0, CLASSES, 3), np.array([0, 5, 6, 9, 999])


@pytest.fixture
def folder(tmp_path):
    for name, ids in {"shoes": SHOES, "red": RED}.items():
        write_set(tmp_path, name, pack_set(ids))
    return tmp_path


@pytest.fixture
def sets(folder):
    return ClassSets((folder, folder / "none"), CLASSES, "items")


def test_a_set_is_read_as_it_was_written(folder):
    for ids in (SHOES, np.array([7, 3, 3]), np.empty(0, np.int64), np.arange(CLASSES)):
        write_set(folder, "some", pack_set(ids))
        np.testing.assert_array_equal(read_set(make_path(folder, "some")), np.unique(ids))
    assert list_set_names(folder) == ["red", "shoes", "some"]
    assert sorted(path.name for path in folder.iterdir()) == ["red.roaring", "shoes.roaring", "some.roaring"]


def test_sets_meet_and_leave_out(sets):
    np.testing.assert_array_equal(sets.find("shoes", None).legal, SHOES)
    np.testing.assert_array_equal(sets.find(["shoes", "red"], None).legal, np.intersect1d(SHOES, RED))
    np.testing.assert_array_equal(sets.find("shoes", ["red"]).legal, np.setdiff1d(SHOES, RED))
    members = sets.find(None, ("red", "shoes"))
    np.testing.assert_array_equal(members.excluded, np.union1d(SHOES, RED))
    assert sets.find(None, None) is None
    assert sets.find([], ()) is None


def test_a_set_that_was_replaced_is_noticed_and_others_are_unpacked_once(sets, folder):
    first = sets.find("shoes", None)
    assert sets.find(["shoes"], None) is first
    write_set(folder, "shoes", pack_set([1]))
    assert sets.find("shoes", None).legal.tolist() == [1]
    assert delete_set(folder, "shoes")
    assert not delete_set(folder, "shoes")
    with pytest.raises(NotFound, match=r"items has no set 'shoes': it has red"):
        sets.find("shoes", None)


def test_each_set_is_read_once_whatever_others_it_is_asked_beside(sets, folder, monkeypatch):
    """Every other combination of sixteen sets held everybody up while all of them were read again."""
    reads = []
    monkeypatch.setattr(class_sets, "read_set", lambda path: reads.append(path.stem) or read_set(path))
    combinations = ("shoes", None), (None, "shoes"), ("shoes", "red"), ("red", "shoes"), (["red", "shoes"], None)
    for within, without in combinations:
        expected = np.arange(CLASSES)
        for name in [within] if isinstance(within, str) else within or []:
            expected = np.intersect1d(expected, SHOES if name == "shoes" else RED)
        if without is not None:
            expected = np.setdiff1d(expected, SHOES if without == "shoes" else RED)
        np.testing.assert_array_equal(sets.find(within, without).legal, expected)
    assert reads == ["shoes", "red"]
    write_set(folder, "red", pack_set([1]))
    assert sets.find(["red", "shoes"], None).count == 0
    assert reads == ["shoes", "red", "red"]


def test_no_more_sets_are_kept_than_fit(sets, monkeypatch):
    monkeypatch.setattr(class_sets, "MAX_PACKED_BYTES", CLASSES // 8)
    monkeypatch.setattr(class_sets, "MAX_UNPACKED_BYTES", 9 * CLASSES)
    for name in ("shoes", "red", "shoes"):
        sets.find(name, None)
    assert (len(sets.packed), len(sets.unpacked)) == (1, 1)


def test_nothing_is_kept_of_sets_that_were_replaced_or_deleted(sets, folder):
    """A set that was put again every minute left its marks behind each time, up to 256 MiB."""
    sets.find("red", None)
    for number in range(5):
        write_set(folder, "shoes", pack_set([number]))
        sets.find("shoes", "red")
    assert (len(sets.packed), len(sets.unpacked)) == (2, 2)
    delete_set(folder, "shoes")
    write_set(folder, "red", pack_set([1]))
    sets.find("red", None)
    assert (len(sets.packed), len(sets.unpacked)) == (1, 1)


def test_what_is_kept_is_counted_with_what_finds_it(folder, monkeypatch):
    """Marks of eight classes take fewer bytes than the names of the files that they were made of."""
    monkeypatch.setattr(class_sets, "MAX_UNPACKED_BYTES", 3 * ENTRY_BYTES)
    sets = ClassSets((folder,), 8, "items")
    for within, without in (("shoes", None), ("red", None), (None, "shoes"), (None, "red"), ("red", "shoes")):
        sets.find(within, without)
        assert sets.unpacked.nbytes == sum(
            map(sets.unpacked.measure, *zip(*sets.unpacked.entries.items(), strict=True))
        )
    assert len(sets.unpacked) < 3


@pytest.mark.parametrize("classes", [1, 6, 7, 8, 9])
def test_numbers_of_classes_that_fill_no_byte(folder, classes):
    sets = ClassSets((folder,), classes, "items")
    assert sets.find("shoes", None).permitted.tolist() == [i % 3 == 0 for i in range(classes)]
    assert sets.find(None, "red").permitted.tolist() == [i not in RED for i in range(classes)]


def test_a_set_beside_the_versions_stands_before_the_bundles_own(folder):
    own = folder / "own"
    write_set(own, "red", pack_set([1]))
    sets = ClassSets((folder, own), CLASSES, "items")
    assert sets.find("red", None).legal.tolist() == RED.tolist()
    delete_set(folder, "red")
    assert sets.find("red", None).legal.tolist() == [1]


def test_ids_that_this_version_has_no_class_for_are_left_out(folder):
    assert ClassSets((folder,), 6, "items").find("red", None).legal.tolist() == [0, 5]


@pytest.mark.parametrize(
    "names", ["", "../red", "a/b", "é", "x" * 129, 3, ["red", 3], ["red"] * (MAX_REQUEST_SETS + 1)]
)
def test_names_that_no_set_can_have(sets, names):
    with pytest.raises(BadInput, match="set"):
        sets.find(names, None)


def test_a_damaged_file_is_refused(sets, folder):
    path = make_path(folder, "red")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    for bad in (bytes(content), b"", b"nothing of ours"):
        path.write_bytes(bad)
        with pytest.raises(BundleError, match="no set of classes"):
            sets.find("red", None)


@pytest.mark.parametrize("end", [0, 1, 12, -2])
def test_a_bitmap_that_lies_under_a_right_checksum_is_refused(sets, folder, end):
    """What reads bitmaps says so by errors of its own, which were answered as unexpected ones."""
    path = make_path(folder, "red")
    packed = path.read_bytes()[HEADER_BYTES:][:end]
    path.write_bytes(MAGIC + zlib.crc32(packed).to_bytes(4, "little") + packed)
    with pytest.raises(BundleError, match="no set of classes"):
        sets.find("red", None)


def test_a_set_that_is_deleted_meanwhile_is_not_found(sets, folder, monkeypatch):
    stamp = sets.stamp("red")
    monkeypatch.setattr(sets, "stamp", lambda _: stamp)
    delete_set(folder, "red")
    with pytest.raises(NotFound, match="set 'red' was deleted meanwhile: put it again, or"):
        sets.find("red", None)


def test_a_process_that_is_forked_while_a_set_is_looked_up_can_ask_for_it(sets):
    with sets.lock:
        assert run_forked(lambda: sets.find("red", None).count == RED.size) == 0
