"""What is compiled is kept, and made anew once any source has changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
from shortlist.kernels.primitives import jit

INNER = "from .primitives.jit import compiled\n\n\n@compiled\ndef inner():\n    return {}\n"
OUTER = (
    "from .primitives.jit import compiled\nfrom .inner import inner\n\n\n@compiled\ndef outer():\n    return inner()\n"
)
ASK = (
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


def asked(loops, **environment):
    """What `outer` returns in a new process, how often it was found compiled, and where."""
    told = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-W", "error", "-c", ASK]
    done = subprocess.run(
        command, cwd=loops.parent, env=told | environment, capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_what_is_kept_is_made_anew_when_a_function_it_calls_changes_in_another_file(loops):
    assert asked(loops)[:2] == [1, 0]
    value, hits, place, _ = asked(loops)
    assert (value, hits) == (1, 1)
    assert Path(place).is_relative_to(loops / "__pycache__")
    (loops / "inner.py").write_text(INNER.format(2))
    assert asked(loops)[:2] == [2, 0]


def test_numbas_own_folder_is_used_and_left_to_others_as_it_was(loops, tmp_path):
    chosen = str(tmp_path / "chosen")
    asked(loops, NUMBA_CACHE_DIR=chosen)
    _, hits, place, folder = asked(loops, NUMBA_CACHE_DIR=chosen)
    assert (hits, folder) == (1, chosen)
    assert Path(place).is_relative_to(chosen)


@pytest.mark.parametrize("home", ["home", "a-file/home"])
def test_a_folder_that_may_not_be_written_is_passed_over(loops, tmp_path, home):
    (loops / "__pycache__").write_text("no folder")
    (tmp_path / "a-file").touch()
    environment = {"HOME": str(tmp_path / home), "XDG_CACHE_HOME": str(tmp_path / home / "cache")}
    asked(loops, **environment)
    value, hits, place, _ = asked(loops, **environment)
    assert (value, hits) == (1, int(home == "home"))
    assert home != "home" or Path(place).is_relative_to(tmp_path / "home")


def test_a_disk_that_is_full_by_now_loses_the_cache_alone(loops):
    full = (
        "import tempfile; from loops.primitives import jit; tempfile.TemporaryFile = lambda **_: open('/dev/full/x'); "
    )
    told = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", full + "from loops.outer import outer; print(outer())"],
        cwd=loops.parent, env=told, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "1\n"
