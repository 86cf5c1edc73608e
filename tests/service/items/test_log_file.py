"""Logs that were torn, damaged, shared, or whose disk is full."""

import errno
import os

import pytest
from shortlist.errors import BundleError, StorageFull
from shortlist.items import log_file
from shortlist.items.log_file import LogFile, pack_frame, read_frames
from shortlist.items.shared_log import SharedLog

CONTENTS = [b"first", b"", b"x" * 1000, b"SLIC and more"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lm.items"
    log = LogFile(path)
    for number, content in enumerate(CONTENTS):
        log.append(number, content)
    log.close()
    return path


def read(path):
    return [frame.content for frame in read_frames(path)]


def test_every_torn_last_frame_is_cut(path):
    whole = path.read_bytes()
    last = len(whole) - len(pack_frame(3, CONTENTS[3]))
    for size in range(last, len(whole)):
        for torn in (whole[:size], whole[:size] + b"\0" * (len(whole) - size)):
            path.write_bytes(torn)
            log = LogFile(path)
            assert log.size == path.stat().st_size == last, size
            log.append(3, b"again")
            log.close()
            assert read(path) == [*CONTENTS[:3], b"again"]


def test_damage_before_the_end_is_refused(path):
    whole = bytearray(path.read_bytes())
    whole[22] ^= 1
    path.write_bytes(whole)
    with pytest.raises(BundleError, match="is damaged at byte 0, before its end"):
        LogFile(path)
    assert path.read_bytes() == whole


def test_a_file_that_is_no_log_is_left_as_it_is(path):
    path.write_bytes(b"item-1\nitem-2\n")
    with pytest.raises(BundleError, match="is no log of changes, or one of another version"):
        LogFile(path)
    assert path.read_bytes() == b"item-1\nitem-2\n"


@pytest.mark.parametrize("content", [b"SLI", b"SLIC\0\0", b"\0" * 9])
def test_a_first_frame_that_is_torn_is_cut(path, content):
    path.write_bytes(content)
    LogFile(path).close()
    assert path.read_bytes() == b""


def test_two_servers_do_not_write_one_log(path):
    log = LogFile(path)
    with pytest.raises(BundleError, match="is written by another server"):
        LogFile(path)
    log.close()
    LogFile(path).close()


def test_what_the_system_refuses_is_said_in_a_sentence(path):
    (path.parent / "folder.items").mkdir()
    with pytest.raises(BundleError, match=r"folder\.items cannot be opened for changes of items \(Is a directory\)"):
        LogFile(path.parent / "folder.items")


def test_a_log_is_replaced_whole(path):
    log = LogFile(path)
    log.replace([pack_frame(7, b"new")])
    log.append(8, b"more")
    with pytest.raises(BundleError, match="another server"):
        LogFile(path)
    log.close()
    assert read(path) == [b"new", b"more"]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_who_waits_for_a_log_opens_the_one_that_took_its_place(path, monkeypatch, is_replaced):
    first = LogFile(path, shared=True)

    def let_in(_):
        if is_replaced:
            first.replace([pack_frame(7, b"new")])
            first.share()
        else:
            path.unlink()
            first.close()

    monkeypatch.setattr(log_file.time, "sleep", let_in)
    second = LogFile(path, shared=True)
    assert second.is_first != is_replaced
    second.append(8, b"more")
    assert read(path) == [b"new", b"more"][1 - is_replaced :]
    second.close()


def list_descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["os.open", "os.fsync", "os.replace", "fcntl.flock"])
def test_a_log_that_cannot_be_replaced_stays(path, monkeypatch, name):
    log, before = LogFile(path), list_descriptors()

    def refuse(*_):
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(f"shortlist.items.log_file.{name}", refuse)
        with pytest.raises(StorageFull, match=r"lm\.items\.new cannot be written \(Permission denied\): make room"):
            log.replace([pack_frame(7, b"new")])
    assert list_descriptors() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    log.append(8, b"more")
    assert read(path) == [*CONTENTS, b"more"]
    log.close()


def test_a_log_that_another_replaces_stays(path):
    log, other = LogFile(path), LogFile(path.with_name("lm.items.new"))
    before = list_descriptors()
    with pytest.raises(BundleError, match=r"items\.new is written by another server"):
        log.replace([pack_frame(7, b"new")])
    assert list_descriptors() == before
    for each in (log, other):
        each.close()
    assert read(path) == CONTENTS


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_is_said_and_changes_nothing(path):
    log = LogFile(path)
    file, log.file = log.file, os.open("/dev/full", os.O_RDWR)
    with pytest.raises(StorageFull, match=r"No space left on device.*make room"):
        log.append(4, b"more")
    os.close(log.file)
    log.file = file
    assert read(path) == CONTENTS
    log.close()


def test_what_processes_share_has_room_on_the_disk_or_says_that_there_is_none(path, monkeypatch):
    SharedLog(path).close()
    assert path.with_name("lm.items.shared").stat().st_blocks, "else the first write to it kills on a full disk"

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(BundleError, match=r"items\.shared cannot be opened .* \(No space left on device\)"):
        SharedLog(path)
