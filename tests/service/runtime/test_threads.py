import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from shortlist.cli import main
from shortlist.errors import BadInput
from shortlist.runtime.threads import choose_threads, count_available_threads, read_cgroup_quota, read_lowest_quota
from shortlist.server.settings import Settings
from shortlist.server.transport.process import serve


@pytest.mark.parametrize(("text", "quota"), [("200000 100000", 2.0), ("150000 100000", 1.5), ("max 100000", None)])
def test_control_group_v2(tmp_path, text, quota):
    (tmp_path / "cpu.max").write_text(text)
    assert read_cgroup_quota(tmp_path / "cpu.max", tmp_path) == quota


@pytest.mark.parametrize(("text", "quota"), [("50000", 0.5), ("-1", None)])
def test_control_group_v1(tmp_path, text, quota):
    (tmp_path / "cpu.cfs_quota_us").write_text(text)
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert read_cgroup_quota(tmp_path / "absent", tmp_path) == quota


def test_no_control_group(tmp_path):
    assert read_cgroup_quota(tmp_path / "absent", tmp_path) is None


def test_the_lowest_quota_of_the_groups_around_a_service_of_systemd_counts(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/a.slice/b.service\n")
    inner = tmp_path / "a.slice" / "b.service"
    inner.mkdir(parents=True)
    assert read_lowest_quota(tmp_path, own) is None
    (inner / "cpu.max").write_text("200000 100000")
    assert read_lowest_quota(tmp_path, own) == 2
    (inner.parent / "cpu.max").write_text("150000 100000")
    assert read_lowest_quota(tmp_path, own) == 1.5


def test_a_group_of_version_1_is_found(tmp_path):
    own, group = tmp_path / "own", tmp_path / "cpu" / "a" / "b"
    own.write_text("9:memory:/other\n3:cpu,cpuacct:/a/b\n1:name=systemd:/cpu\n")
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("50000")
    (group / "cpu.cfs_period_us").write_text("100000")
    assert read_lowest_quota(tmp_path, own) == 0.5


@pytest.mark.parametrize("lines", ["0::/gone/from/here\n", "0::/\n", "nonsense\n", None])
def test_a_container_sees_its_group_as_the_root(tmp_path, lines):
    own = tmp_path / "own"
    if lines is not None:
        own.write_text(lines)
    (tmp_path / "cpu.max").write_text("300000 100000")
    assert read_lowest_quota(tmp_path, own) == 3


def test_at_least_one_and_at_most_the_affinity():
    assert 1 <= count_available_threads() <= len(os.sched_getaffinity(0))


def test_threads_are_those_asked_for_or_all():
    assert choose_threads(np.int64(3)) == 3
    assert choose_threads(None) == count_available_threads()


@pytest.mark.parametrize(
    ("threads", "reason"), [(-3, "-3: give 1 or more"), (0, "0: give 1 or more"), ("2", "'2': give a whole number")]
)
def test_threads_are_one_or_more(threads, reason):
    with pytest.raises(BadInput, match=f"threads is {reason}"):
        choose_threads(threads)


def test_a_server_is_refused_outside_the_main_thread(capsys, tmp_path):
    """It failed once all was loaded, with a traceback: signals cannot be handled there."""
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(BadInput, match="runs in the main thread alone: start `shortlist serve` as a process"):
            pool.submit(serve, Settings(repository=tmp_path)).result()
        assert pool.submit(main, ["serve", str(tmp_path), "--processes", "2"]).result() == 1
    assert "shortlist serve: a server is ended by signals" in capsys.readouterr().err
