"""Builds the native library by the system's C compiler: python service/shortlist/kernels/native/build.py.

It imports nothing but the standard library, so that a build of the package can run it by its path.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE_FOLDER = Path(__file__).parent
LIBRARY_NAME = "libshortlist_kernels.so"

# No product and sum become one step, so that all targets give the same bits; nothing reads errno or float exceptions.
FLAGS = (
    "-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", f"-I{SOURCE_FOLDER}",
)  # fmt: skip
X86_TARGETS = {
    "avx512vnni": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mbmi",
                   "-mprefer-vector-width=512"),
    "avxvnni": ("-mavx2", "-mbmi", "-mavxvnni"),
    "avx2": ("-mavx2", "-mbmi"),
}  # fmt: skip
ARM_TARGETS = {"neon": ("-march=armv8.2-a+dotprod",)}
TARGETS_BY_MACHINE = dict.fromkeys(("x86_64", "AMD64"), X86_TARGETS) | dict.fromkeys(("aarch64", "arm64"), ARM_TARGETS)


class CompilerMissing(Exception):
    """There is no C compiler."""


@cache
def hash_sources() -> str:
    """Return a hash of all sources of the library, which it is built with."""
    digest = sha256()
    for path in sorted([*SOURCE_FOLDER.rglob("*.[ch]"), Path(__file__)]):
        name = path.relative_to(SOURCE_FOLDER).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> str:
    """Return the command of the C compiler: that of CC, or the first there is; raises CompilerMissing."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if command and shutil.which(command.split()[0]):
            return command
    raise CompilerMissing("no C compiler was found: install gcc or clang, or name one by CC")


def knows_flags(compiler: list[str], flags: tuple[str, ...]) -> bool:
    """Return whether the compiler has a target's instructions: AVX-VNNI needs gcc 11 or clang 12."""
    command = [*compiler, *flags, "-fsyntax-only", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def list_objects(machine: str, compiler: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the flags of each source file, by its path without suffix; targets that it does not know are left out."""
    targets = {"portable": ()} | {
        name: flags for name, flags in TARGETS_BY_MACHINE.get(machine, {}).items() if knows_flags(compiler, flags)
    }
    names = (f"-DHAS_{name.upper()}" for name in targets)
    dispatch = (f'-DSOURCE_HASH="{hash_sources()}"', *names)
    return {"dispatch": dispatch, "system/pool": (), "system/memory": ()} | {
        f"targets/{name}": flags for name, flags in targets.items()
    }


def compile_objects(compiler: str, machine: str, folder: Path, *more: str) -> list[str]:
    """Compile all sources for `machine` into `folder`, with `more` flags; returns the objects' paths.

    As many at once as there are processors. Raises CalledProcessError with what the compiler wrote.
    """
    command, objects, commands = compiler.split(), [], []
    for name, flags in list_objects(machine, command).items():
        objects.append(str(folder / f"{Path(name).name}.o"))
        source = str(SOURCE_FOLDER / f"{name}.c")
        commands.append([*command, *FLAGS, *flags, *more, "-c", source, "-o", objects[-1]])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, commands))
    return objects


def build_library(folder: Path = SOURCE_FOLDER) -> Path:
    """Build the library into `folder`; a process that uses an older one there is not disturbed.

    CFLAGS are added to the flags. Raises CompilerMissing, and CalledProcessError with what the compiler wrote.
    """
    compiler, more = find_compiler(), os.environ.get("CFLAGS", "").split()
    with TemporaryDirectory(dir=folder) as temporary:
        library = Path(temporary) / LIBRARY_NAME
        objects = compile_objects(compiler, platform.machine(), Path(temporary), *more)
        run([*compiler.split(), "-shared", "-pthread", *more, "-o", str(library), *objects, "-lm"])
        return library.replace(folder / LIBRARY_NAME)


def run(command: list[str]) -> None:
    """Run a compiler; what it writes is shown."""
    subprocess.run(command, check=True)


def main() -> int:
    """Build beside the sources, where the package looks; returns 1 where that failed."""
    try:
        library = build_library()
    except (CompilerMissing, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"the native library was not built: {error}\n")
        return 1
    sys.stderr.write(f"built {library}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
