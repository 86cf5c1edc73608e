"""The fuzzing of the native library, on a few hundred seeds."""

import subprocess
from pathlib import Path

import pytest
from shortlist.kernels.native.build import compile_objects, find_compiler

from tools.fuzz.kernels import SANITIZERS, build_program

pytestmark = pytest.mark.slow


def has_sanitizers(folder: Path) -> bool:
    """Whether the compiler can link a program with them."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }")
    command = [*find_compiler().split(), *SANITIZERS, str(source), "-o", str(program)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_targets_agree_on_odd_shapes_under_sanitizers(tmp_path):
    if not has_sanitizers(tmp_path):
        pytest.skip("this compiler has no sanitizers")
    process = subprocess.run([build_program(tmp_path), "1", "300"], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "300 seeds: no difference\n", "")


def test_the_sources_compile_without_a_warning(tmp_path):
    assert compile_objects(tmp_path, "-Werror")
