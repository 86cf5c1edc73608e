"""Runs the native library's targets on arrays of odd shapes, under AddressSanitizer and UndefinedBehaviorSanitizer.

python -m tools.fuzz.kernels --seed 1 --count 20000
python -m tools.fuzz.kernels --kind avxvnni --count 500    where the processor lacks its instruction: in software
python -m tools.fuzz.kernels --kind neon --count 500       by QEMU

The last two run the library's code as it ships, without sanitizers: the first on x86-64 Linux with AVX2, the second
with Debian's packages qemu-user and gcc-aarch64-linux-gnu.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from shortlist.kernels.native.build import FLAGS, compile_objects, find_compiler

SOURCE = Path(__file__).with_suffix(".c")
# -g1: a report names lines of the source; variables, which it names none of, would take half as long again to build.
SANITIZERS = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
ARM_COMPILER, ARM_EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


@dataclass(frozen=True)
class Kind:
    """A way to build and run the program. sources: more of them, and flags of kernels.c. runner: what it is run by."""

    compiler: str
    machine: str
    flags: tuple[str, ...] = SANITIZERS
    sources: tuple[str, ...] = ()
    runner: tuple[str, ...] = ()


def make_kind(name: str) -> Kind:
    """The kind of this name: `here` runs the targets that the processor has."""
    if name == "neon":
        return Kind(ARM_COMPILER, "aarch64", ("-static",), runner=(ARM_EMULATOR,))
    if name == "avxvnni":  # optimised as the library is, so that the instruction comes in all of its forms
        software = "-DEMULATE", str(SOURCE.with_name("emulate_vpdpbusd.c"))
        return Kind(find_compiler(), platform.machine(), (), software)
    return Kind(find_compiler(), platform.machine())


def find_missing_tool(kind: Kind) -> str | None:
    """The first command that this kind needs and that is not installed."""
    return next((tool for tool in (kind.compiler.split()[0], *kind.runner) if not shutil.which(tool)), None)


def build_command(kind: Kind, folder: Path) -> list[str]:
    """Build kernels.c and the library's sources into one program in `folder`; returns the command that runs it."""
    program, compiler = folder / "fuzz-kernels", kind.compiler.split()
    objects = compile_objects(kind.compiler, kind.machine, folder, *kind.flags)
    subprocess.run(
        [*compiler, *FLAGS, *kind.flags, *kind.sources, str(SOURCE), *objects, "-pthread", "-lm", "-o", str(program)],
        check=True,
    )
    return [*kind.runner, str(program)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, default=20_000, help="of seeds")
    parser.add_argument("--kind", choices=("here", "avxvnni", "neon"), default="here", help="which targets run")
    args = parser.parse_args()
    kind = make_kind(args.kind)
    if tool := find_missing_tool(kind):
        sys.stderr.write(f"there is no {tool}: --help says what to install\n")
        return 1
    with TemporaryDirectory() as folder:
        command = build_command(kind, Path(folder))
        return subprocess.run([*command, str(args.seed), str(args.count)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
