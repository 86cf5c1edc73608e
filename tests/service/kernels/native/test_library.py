"""The native library: which target runs, and what is said where none does."""

import itertools
import logging
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.native import build, library

from tests.support.kernels import list_targets


@pytest.fixture(autouse=True)
def forget_targets():
    yield
    library.open_target.cache_clear()


def test_the_library_was_built_from_these_sources():
    assert library.load_library() is not None, "run `make native`"


def test_the_fastest_target_is_the_default(monkeypatch):
    monkeypatch.delenv(library.VARIABLE, raising=False)
    assert library.require_kernels().target == list_targets()[0]


@pytest.mark.parametrize("target", list_targets())
def test_the_environment_forces_a_target(monkeypatch, target):
    monkeypatch.setenv(library.VARIABLE, target)
    assert library.require_kernels().target == target


def test_a_target_that_is_none_is_one_sentence(monkeypatch):
    monkeypatch.setenv(library.VARIABLE, "sse9")
    with pytest.raises(BadInput, match=r"^SHORTLIST_KERNELS=sse9 is no target: choose avx512vnni, .* or portable$"):
        library.open_kernels()


@pytest.mark.parametrize("target", sorted(set(library.TARGETS) - set(list_targets())))
def test_a_target_that_the_processor_lacks_is_one_sentence(monkeypatch, target):
    monkeypatch.setenv(library.VARIABLE, target)
    sentence = f"SHORTLIST_KERNELS={target}: this processor or this build lacks it, choose another or leave it unset"
    with pytest.raises(BadInput, match=f"^{sentence}$"):
        library.open_kernels()


@pytest.mark.parametrize("is_stale", [False, True])
def test_a_missing_or_stale_library_is_one_line(monkeypatch, caplog, tmp_path, is_stale):
    library.load_library.cache_clear()
    if is_stale:
        monkeypatch.setattr(library, "hash_sources", lambda: "another")
    else:
        monkeypatch.setattr(library, "SOURCE_FOLDER", tmp_path)
    with caplog.at_level(logging.INFO, "shortlist"):
        assert library.open_target("") is None
        assert library.open_kernels() is None
    assert len(caplog.messages) == 1
    assert "graphs answer in their place, up to 15 times as slowly" in caplog.text
    library.load_library.cache_clear()


def test_loops_without_a_library_are_refused(no_library):
    with pytest.raises(library.NoLibrary, match="make native"):
        CompiledGather(np.zeros((1, 1), np.float32))


def test_a_build_has_no_warning_and_writes_the_library_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", "-Werror")
    path = build.build_library(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_target_that_the_compiler_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setitem(build.X86_TARGETS, "avx9", ("-mavx9",))
    objects = build.list_objects("x86_64", build.find_compiler().split())
    assert "targets/avx9" not in objects
    assert "targets/portable" in objects
    assert "-DHAS_PORTABLE" in objects["dispatch"]


@pytest.mark.parametrize(("compiler", "machine"), [(None, platform.machine()), ("aarch64-linux-gnu-gcc", "aarch64")])
def test_flags_that_allow_a_target_more_than_its_source_uses_break_no_build(compiler, machine):
    """Who builds adds -march=native, and clang allows all that Apple's processors can."""
    if compiler and not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    command = (compiler or build.find_compiler()).split()
    objects = build.list_objects(machine, command)
    targets = [name for name in objects if name.startswith("targets/")]
    for name, more in itertools.product(targets, targets):
        source = str(build.SOURCE_FOLDER / f"{name}.c")
        build.run([*command, *build.FLAGS, *objects[name], *objects[more], "-Werror", "-fsyntax-only", source])


def test_a_build_without_a_compiler_says_so(tmp_path):
    command = [sys.executable, build.__file__]
    process = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr == (
        "the native library was not built: no C compiler was found: install gcc or clang, or name one by CC\n"
    )
