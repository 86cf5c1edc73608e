"""The fuzzing of the native library, on a few hundred seeds."""

import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from shortlist.kernels.native.build import find_compiler, knows_flags

from tests.support.kernels import list_targets
from tools.fuzz.kernels import SANITIZERS, Kind, build_command, find_missing_tool, make_kind

pytestmark = pytest.mark.slow


def has_sanitizers(folder: Path) -> bool:
    """Whether the compiler can link a program with them."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }")
    command = [*find_compiler().split(), *SANITIZERS, str(source), "-o", str(program)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_no_difference(kind: Kind, folder: Path, seeds: int, *flags: str) -> None:
    """flags: more of them; as `-O0`, since the library's own take longer to build than a hundred seeds to run."""
    command = [*build_command(replace(kind, flags=(*kind.flags, *flags)), folder), "1", str(seeds)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, f"{seeds} seeds: no difference\n", "")


def test_targets_agree_on_odd_shapes_under_sanitizers(tmp_path):
    if not has_sanitizers(tmp_path):
        pytest.skip("this compiler has no sanitizers")
    check_no_difference(make_kind("here"), tmp_path, 100, "-O0")


def test_avx_vnni_agrees_where_its_instruction_is_emulated(tmp_path):
    if platform.system() != "Linux" or "avx2" not in list_targets():
        pytest.skip("the instruction can be emulated on x86-64 Linux with AVX2 alone")
    if "avxvnni" in list_targets():
        pytest.skip("this processor has the instruction: the test above ran it")
    if not knows_flags(find_compiler().split(), ("-mavxvnni",)):
        pytest.skip("this compiler does not know AVX-VNNI")
    check_no_difference(make_kind("avxvnni"), tmp_path, 100)


def test_neon_agrees_under_qemu(tmp_path):
    kind = make_kind("neon")
    if tool := find_missing_tool(kind):
        pytest.skip(f"there is no {tool}: install qemu-user and gcc-aarch64-linux-gnu")
    check_no_difference(kind, tmp_path, 60, "-O1")


@pytest.mark.long
@pytest.mark.parametrize("name", ["here", "neon"])
def test_targets_agree_as_they_ship(tmp_path, name):
    kind = make_kind(name)
    if find_missing_tool(kind) or not (name == "neon" or has_sanitizers(tmp_path)):
        pytest.skip("this system has no sanitizers, or no emulator: the tests above say which")
    check_no_difference(kind, tmp_path, 1000)
