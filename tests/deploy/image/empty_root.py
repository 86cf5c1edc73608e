"""An empty root with Python alone, in the place of the base image: the Dockerfile's steps are run in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.deploy.files import Stage
from tests.deploy.image.test_install import copy_all

BASE = Path(sys.base_prefix)
PYTHON = BASE / "bin" / "python3.11"
STDLIB = Path(sysconfig.get_path("stdlib"))
LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "config-*")
LIBRARY = re.compile(r"(/\S+\.so[\w.]*)")


def make_python(root: Path) -> None:
    """Python, its standard library and the shared libraries that these need, at the places that they have here."""
    copy_file(PYTHON.resolve(), root)
    shutil.copytree(STDLIB, place(root, STDLIB), ignore=LEFT_OUT, symlinks=True)
    link = place(root, PYTHON)
    for name in ("python", "python3", "python3.11"):
        if not (link.parent / name).exists():
            (link.parent / name).symlink_to(PYTHON.resolve().name)
    for name in ("tmp", "etc", "proc", "repository"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    copy_libraries([PYTHON.resolve(), *STDLIB.rglob("*.so")], root)


def copy_libraries(paths: list[Path], root: Path) -> None:
    """The shared libraries of programs and libraries, as the loader finds them here."""
    for path in paths:
        process = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for found in LIBRARY.findall(process.stdout):
            if not place(root, Path(found)).exists() and Path(found).is_file():
                copy_file(Path(found), root)


def copy_file(path: Path, root: Path) -> None:
    """A file at the place that it has here; what a link leads to."""
    target = place(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def place(root: Path, path: Path) -> Path:
    """Where a path lies below `root`."""
    return root / path.relative_to("/")


def run_stage(stage: Stage, root: Path, folder: Path) -> dict[str, str]:
    """Run a stage's COPY and RUN lines; returns the variables of its ENV lines. folder: of other stages' files."""
    variables: dict[str, str] = {}
    for word, rest in stage.steps:
        if word == "COPY":
            copy_all(rest.split(), folder, root)
        elif word == "RUN":
            install(shlex.split(rest), root)
        elif word == "ENV":
            variables |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    copy_libraries(list(place(root, STDLIB).rglob("*.so*")), root)
    return variables


def install(words: list[str], root: Path) -> None:
    """Run a pip line, installing below `root`. The image keeps no cache; here the one that is there saves minutes."""
    assert words[:2] == ["pip", "install"]
    arguments = [word for word in words[2:] if word != "--no-cache-dir"]
    into = ["--root", root, "--prefix", BASE, "--ignore-installed", "--no-warn-script-location", "-qq"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([PYTHON, "-m", "pip", "install", *into, *arguments], cwd=root, check=True, env=environment)


def list_files(root: Path) -> list[Path]:
    """The files of the root, links apart."""
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
