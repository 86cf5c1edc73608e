"""Runs the native library's targets on arrays of odd shapes, under AddressSanitizer and UndefinedBehaviorSanitizer.

python -m tools.fuzz.kernels --seed 1 --count 20000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from shortlist.kernels.native.build import FLAGS, compile_objects, find_compiler

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def build_program(folder: Path) -> Path:
    """Build kernels.c and the library's sources with sanitizers into one program in `folder`."""
    program, source = folder / "fuzz-kernels", Path(__file__).with_suffix(".c")
    objects = compile_objects(folder, *SANITIZERS)
    command = [
        *find_compiler().split(),
        *FLAGS,
        *SANITIZERS,
        str(source),
        *objects,
        "-pthread",
        "-lm",
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, default=20_000, help="of seeds")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        program = build_program(Path(folder))
        return subprocess.run([program, str(args.seed), str(args.count)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
