"""Contexts are kept for their time and number, in files that exports read, and by request alone."""

from __future__ import annotations

import resource
import stat

import numpy as np
import pytest
import shortlist
from safetensors.numpy import load_file, save_file
from shortlist.cli.context_files import read_contexts
from shortlist.errors import BadInput
from shortlist.server.models import Model
from shortlist.server.precision.kept_contexts import ContextFolder, KeptContexts
from shortlist.server.precision.monitor import open_folder
from shortlist.server.settings import Settings
from shortlist_exporter.inputs.sources import load_contexts

from tests.support.clock import Clock
from tests.support.layers import RunningServer, make_contexts

ROWS = make_contexts(rows=60, seed=5).contexts


@pytest.fixture
def clock():
    return Clock(1000.0)


def test_the_last_rows_are_kept(tmp_path, clock):
    path = tmp_path / "lm" / "1.safetensors"
    kept = KeptContexts(path, 25, 100, clock)
    for start in range(0, 60, 10):
        kept.add(ROWS[start : start + 10])
        clock.now += 1
    kept.write()
    assert np.array_equal(load_file(path)["contexts"], ROWS[35:])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["1.safetensors"]


def test_none_is_kept_for_longer(tmp_path, clock):
    path = tmp_path / "1.safetensors"
    kept = KeptContexts(path, 100, 100, clock)
    kept.add(ROWS[:10])
    clock.now += 60
    kept.add(ROWS[10:20])
    clock.now += 60
    kept.write()
    assert np.array_equal(load_file(path)["contexts"], ROWS[10:20])
    clock.now += 60
    kept.write()
    assert not path.exists()


def test_the_next_server_goes_on_from_the_file(tmp_path, clock):
    path = tmp_path / "1.safetensors"
    first = KeptContexts(path, 15, 100, clock)
    first.add(ROWS[:10])
    first.write()
    second = KeptContexts(path, 15, 100, clock)
    second.add(ROWS[10:20])
    second.write()
    assert np.array_equal(load_file(path)["contexts"], ROWS[5:20])


def test_another_file_at_the_path_is_written_anew(tmp_path, clock, caplog):
    path = tmp_path / "1.safetensors"
    path.write_bytes(b"something else")
    kept = KeptContexts(path, 15, 100, clock)
    kept.add(ROWS[:3])
    kept.write()
    assert np.array_equal(load_file(path)["contexts"], ROWS[:3])
    assert "holds no kept contexts" in caplog.text


@pytest.mark.parametrize("shape", [(3, 5), (3,), (3, 5, 2)])
def test_contexts_of_another_width_are_dropped(tmp_path, caplog, shape):
    """A version may be replaced by one of another layer."""
    path = tmp_path / "1.safetensors"
    save_file({"contexts": np.ones(shape, np.float32), "times": np.full(3, 1e9)}, path)
    kept = KeptContexts(path, 15, 1e9, Clock())
    kept.add(ROWS[:4])
    assert kept.write()
    assert np.array_equal(load_file(path)["contexts"], ROWS[:4])
    assert "written anew" in caplog.text


def test_files_of_versions_that_nobody_serves_grow_old_too(tmp_path):
    old = KeptContexts(tmp_path / "lm" / "1.safetensors", 100, 1e9, Clock())
    old.add(ROWS[:3])
    old.write()
    ContextFolder(tmp_path, 100, 3600).write()
    assert not old.path.exists()


@pytest.mark.parametrize(("own", "processes"), [("", 1), ("0", 2), ("0", 4)])
def test_contexts_of_a_server_with_another_number_of_processes_grow_old_too(tmp_path, own, processes):
    """They stayed for good: a server looked at its own files alone."""
    places = ["lm", "0/lm", "1/lm", "2/lm", "3/lm"]
    for place in places:
        old = KeptContexts(tmp_path / place / "1.safetensors", 100, 1e9, Clock())
        old.add(ROWS[:3])
        old.write()
    ContextFolder(tmp_path / own, 100, 3600, processes).write()
    others = [f"{number}/lm" for number in range(1, processes)]  # another process looks after each of them
    assert [place for place in places if (tmp_path / place / "1.safetensors").exists()] == others
    ContextFolder(tmp_path / "1", 100, 3600, 2).write()
    assert not (tmp_path / "1" / "lm" / "1.safetensors").exists()


def test_a_clock_that_was_ahead_for_a_while_keeps_no_row_for_longer(tmp_path, clock):
    """Rows behind one of the year 2040 stayed until then."""
    kept = KeptContexts(tmp_path / "1.safetensors", 100, 100, clock)
    clock.now += 1e8
    kept.add(ROWS[:1])
    clock.now -= 1e8
    kept.add(ROWS[1:3])
    kept.write()
    assert load_file(kept.path)["times"].tolist() == [clock.now] * 3
    clock.now += 60
    kept.add(ROWS[3:4])
    clock.now += 60
    kept.write()
    assert np.array_equal(load_file(kept.path)["contexts"], ROWS[3:4])


def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path, caplog):
    folder = ContextFolder(tmp_path, 100, 3600)
    (tmp_path / "a").write_text("no folder")
    for name in ("a", "b"):
        folder.add(Model(name, 1, tmp_path), ROWS[:3])
    folder.write()
    assert (tmp_path / "b" / "1.safetensors").exists()
    (tmp_path / "a").unlink()
    folder.write()
    assert np.array_equal(load_file(tmp_path / "a" / "1.safetensors")["contexts"], ROWS[:3])
    assert caplog.text.count("contexts cannot be kept") == 1


def test_a_folder_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "lm").write_text("no folder")
    kept = KeptContexts(tmp_path / "lm" / "1.safetensors", 100, 1e9)
    kept.add(ROWS[:1])
    folder = ContextFolder(tmp_path, 100, 3600)
    folder.files[kept.path] = kept
    folder.write()
    assert "contexts cannot be kept" in caplog.text


def test_a_folder_that_cannot_be_read_keeps_no_row_from_being_asked_again(tmp_path, caplog):
    folder = ContextFolder(tmp_path / ("a" * 300), 100, 3600)  # as one without access: whoever looks gets an OSError
    folder.add(Model("lm", 1, tmp_path), ROWS)
    folder.write()
    assert "contexts cannot be kept" in caplog.text


def test_a_disk_that_fills_up_keeps_no_part_of_a_file(tmp_path, caplog):
    """It would lie there for good: nobody looks how old it is."""
    folder, (soft, hard) = ContextFolder(tmp_path, 100, 100), resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.add(Model("lm", 1, tmp_path), ROWS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        folder.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "make room" in caplog.text
    assert list((tmp_path / "lm").iterdir()) == []
    folder.write()
    assert np.array_equal(load_file(tmp_path / "lm" / "1.safetensors")["contexts"], ROWS)


def test_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path, monkeypatch):
    """The log said so once a minute, from the first row on that was to be kept."""
    (tmp_path / "file").write_text("no folder")
    settings = Settings(repository=tmp_path, keep_contexts=tmp_path / "file" / "kept")
    with pytest.raises(BadInput, match=r"kept contexts .*kept cannot be made: Not a directory"):
        open_folder(settings)
    monkeypatch.setattr("os.access", lambda *_: False)  # who runs the tests may write everywhere
    with pytest.raises(BadInput, match="cannot be written: give this user access"):
        open_folder(Settings(repository=tmp_path, keep_contexts=tmp_path / "kept"))


@pytest.mark.slow
def test_a_server_keeps_what_it_asks_again(small_repository, tmp_path):
    flags = ("--precision-share", "1", "--precision-cpu", "1", "--threads", "1")
    folder = tmp_path / "kept"
    with RunningServer(small_repository, *flags, "--keep-contexts", str(folder), "--keep-rows", "50") as server:
        with shortlist.Client(server.url) as client:
            client.topk("lm", ROWS, 5)
            while not (server.http.get("/v1/models/lm").json()["served_precision"] or {"rows": 0})["rows"]:
                pass
        server.process.terminate()
        assert server.process.wait(timeout=60) == 0
        log = "".join(server.log)
    path = folder / "lm" / "1.safetensors"
    assert np.array_equal(load_contexts(path).contexts, ROWS[-50:])
    assert np.array_equal(read_contexts(path), ROWS[-50:])
    assert "ERROR" not in log
