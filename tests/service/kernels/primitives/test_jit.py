"""Compiled loops are cached until a source changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
from shortlist.kernels.primitives import jit

pytestmark = pytest.mark.slow

INNER = "from .primitives.jit import compile_loop\n\n\n@compile_loop\ndef inner():\n    return {}\n"
OUTER = (
    "from .primitives.jit import compile_loop\nfrom .inner import inner\n\n\n"
    "@compile_loop\ndef outer():\n    return inner()\n"
)
PROGRAM = (
    "import json; from numba import config; from loops.outer import outer; "
    "print(json.dumps([outer(), sum(outer.stats.cache_hits.values()), outer.stats.cache_path, config.CACHE_DIR]))"
)


@pytest.fixture
def loops(tmp_path):
    folder = tmp_path / "loops"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "primitives").mkdir()
    (folder / "primitives" / "__init__.py").touch()
    (folder / "primitives" / "jit.py").write_text(Path(jit.__file__).read_text())
    (folder / "inner.py").write_text(INNER.format(1))
    (folder / "outer.py").write_text(OUTER)
    return folder


def run_outer(loops, **environment):
    """What `outer` returns in a new process, how often the cache had it, and where that is."""
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=loops.parent, env=variables | environment, capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_the_cache_is_renewed_when_a_function_in_another_file_changes(loops):
    assert run_outer(loops)[:2] == [1, 0]
    value, hits, place, _ = run_outer(loops)
    assert (value, hits) == (1, 1)
    assert Path(place).is_relative_to(loops / "__pycache__")
    (loops / "inner.py").write_text(INNER.format(2))
    assert run_outer(loops)[:2] == [2, 0]


def test_numbas_own_folder_is_used_and_left_to_others_as_it_was(loops, tmp_path):
    numba_folder = str(tmp_path / "numba")
    run_outer(loops, NUMBA_CACHE_DIR=numba_folder)
    _, hits, place, folder = run_outer(loops, NUMBA_CACHE_DIR=numba_folder)
    assert (hits, folder) == (1, numba_folder)
    assert Path(place).is_relative_to(numba_folder)


@pytest.mark.parametrize("home", ["home", "a-file/home"])
def test_a_folder_that_may_not_be_written_is_passed_over(loops, tmp_path, home):
    (loops / "__pycache__").write_text("no folder")
    (tmp_path / "a-file").touch()
    environment = {"HOME": str(tmp_path / home), "XDG_CACHE_HOME": str(tmp_path / home / "cache")}
    run_outer(loops, **environment)
    value, hits, place, _ = run_outer(loops, **environment)
    assert (value, hits) == (1, int(home == "home"))
    assert home != "home" or Path(place).is_relative_to(tmp_path / "home")


def test_a_disk_that_is_full_by_now_loses_the_cache_alone(loops):
    full = (
        "import tempfile; from loops.primitives import jit; tempfile.TemporaryFile = lambda **_: open('/dev/full/x'); "
    )
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", full + "from loops.outer import outer; print(outer())"],
        cwd=loops.parent, env=variables, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "1\n"
