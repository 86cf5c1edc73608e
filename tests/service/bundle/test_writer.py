"""Versions appear whole or not at all, whatever interrupts their export."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import is_abandoned, write_version
from shortlist.errors import BundleError, VersionExists

from tests.support.layers import call_cli, make_contexts, make_dense, make_head, run_cli

pytestmark = pytest.mark.slow


def test_writing_appears_in_one_rename(tmp_path):
    with write_version(tmp_path / "lm" / "1") as folder:
        (folder / "part").write_text("x")
        assert not (tmp_path / "lm" / "1").exists()
    assert (tmp_path / "lm" / "1" / "part").read_text() == "x"
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["1"]


def test_a_failure_leaves_nothing(tmp_path):
    def interrupt_writing():
        with write_version(tmp_path / "lm" / "1") as folder:
            (folder / "part").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupt_writing()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lm" / "7").mkdir(parents=True)
    with pytest.raises(ZeroDivisionError):
        interrupt_writing()
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["7"], "only what was made goes away"


def test_versions_are_immutable(tmp_path):
    (tmp_path / "lm" / "1").mkdir(parents=True)
    with pytest.raises(VersionExists, match="export to the next version"), write_version(tmp_path / "lm" / "1"):
        raise AssertionError("never entered")


@pytest.mark.parametrize("name", ["0", "01", "-1", "latest", "1.0", "٣"])
def test_a_version_is_a_whole_number(tmp_path, name):
    with pytest.raises(BundleError, match="whole number from 1"), write_version(tmp_path / "lm" / name):
        raise AssertionError("never entered")


def files(tmp_path):
    save_file({"weight": make_dense(20_000, 64).weight}, tmp_path / "w.safetensors")
    save_file({"contexts": make_contexts(4000, 64).contexts}, tmp_path / "c.safetensors")
    return ["--weights", tmp_path / "w.safetensors", "--contexts", tmp_path / "c.safetensors"]


def test_a_full_disk(tmp_path):
    """A file-size limit stops the write as a full disk would."""
    inputs = files(tmp_path)
    out = tmp_path / "repo" / "lm" / "1"
    limit = 1 << 20
    done = run_cli(
        *("export", *inputs, "--method", "full", "--out", out),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "repo").exists()


def test_a_short_write_of_numpy_is_said_as_a_full_disk(tmp_path):
    def write():
        with write_version(tmp_path / "lm" / "1") as folder, (folder / "a.bin").open("wb") as file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
            np.zeros(100_000, np.float32).tofile(file)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(BundleError, match=r"cannot be written \((no room, 100000 requested|File too large)"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_at_the_last_files(tmp_path):
    """The calibration is larger than what is written before it."""
    np.save(tmp_path / "w.npy", make_dense(20, 2000).weight)
    np.save(tmp_path / "c.npy", make_contexts(800, 2000).contexts)
    out, limit = tmp_path / "repo" / "lm" / "1", 300_000
    done = run_cli(
        *("export", "--weights", tmp_path / "w.npy", "--contexts", tmp_path / "c.npy"),
        *("--method", "full", "--out", out),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert "cannot be written (File too large)" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "repo").exists()


def start_export(inputs, out):
    """An export that has begun to write."""
    command = [sys.executable, "-m", "shortlist", "export", *map(str, inputs), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.parent.glob(".unfinished-*/1")) if out.parent.exists() else True:
        assert process.poll() is None, "the export ended before it could be stopped"
        time.sleep(0.005)
    return process


def test_a_killed_export_leaves_no_version_and_the_next_one_cleans_up(tmp_path):
    inputs = files(tmp_path)
    out = tmp_path / "repo" / "lm" / "1"
    process = start_export(inputs, out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    done = call_cli("export", *inputs, "--method", "full", "--no-report", "--out", out)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_export_says_so_and_leaves_nothing(tmp_path, number):
    out = tmp_path / "repo" / "lm" / "1"
    process = start_export(files(tmp_path), out)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == -number, "so that a shell's loop and a service manager know who ended it"
    assert errors.splitlines()[-1] == "shortlist export: stopped"
    assert not (tmp_path / "repo").exists()


def test_what_killed_exports_of_another_version_left_goes_and_what_a_running_one_has_stays(tmp_path):
    command = (
        "import pathlib, sys, time, shortlist.bundle.writer as writer\n"
        "with writer.write_version(pathlib.Path(sys.argv[1])) as folder:\n"
        "    print(folder.parent, flush=True)\n"
        "    time.sleep(60)"
    )
    arguments = [sys.executable, "-c", command, str(tmp_path / "lm" / "1")]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    left = Path(process.stdout.readline().strip())
    with write_version(tmp_path / "lm" / "2"):
        assert left.is_dir(), "its export runs"
    process.terminate()
    process.communicate()
    assert left.is_dir()
    with write_version(tmp_path / "lm" / "3"):
        assert not left.exists()
    assert sorted(path.name for path in (tmp_path / "lm").iterdir()) == ["2", "3"]


def test_exports_of_one_version_at_a_time_keep_their_own_folders(tmp_path):
    """As in two containers, where process ids tell nothing; the slower one is told what happened."""
    out = tmp_path / "lm" / "1"

    def slower():
        with write_version(out) as slow:
            (slow / "part").write_text("slow")
            with write_version(out) as fast:
                assert slow != fast
                assert (slow / "part").exists()
                assert not is_abandoned(slow.parent)
                (fast / "part").write_text("fast")

    with pytest.raises(VersionExists, match="export to the next version"):
        slower()
    assert (out / "part").read_text() == "fast"
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["1"]


def test_every_user_may_read_a_bundle_and_nobody_write_it(tmp_path):
    """As far as the umask lets them: a container's user is not the one who exported."""
    folder = make_head(tmp_path, make_dense(), labels=["\ud800"] * 300).folder
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "file").touch()
    for path in (folder, *folder.rglob("*")):
        usual = (plain if path.is_dir() else plain / "file").stat().st_mode
        assert path.stat().st_mode == (usual if path.is_dir() or "report" in path.parts else usual & ~0o222), path
    assert Bundle(folder).labels() == ["\ud800"] * 300
