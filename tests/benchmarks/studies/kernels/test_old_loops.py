"""The last commit whose loops numba compiled."""

import subprocess

import pytest

from benchmarks.studies.kernels import old_loops


def test_the_commit_has_numbas_loops(tmp_path):
    if subprocess.run(["git", "cat-file", "-e", old_loops.NUMBA_COMMIT], capture_output=True, check=False).returncode:
        pytest.skip("this clone has no history")
    sources = old_loops.check_out(tmp_path)
    assert "numba" in (sources / "pyproject.toml").read_text("utf-8")
    assert (sources / "service/shortlist/kernels/primitives/vnni.py").is_file()
    assert old_loops.check_out(tmp_path) == sources


def test_a_clone_without_that_commit_is_one_sentence(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path / "empty"], check=True)
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(old_loops.OldLoopsMissing, match=r"^git archive failed: "):
        old_loops.check_out(tmp_path / "cache")
