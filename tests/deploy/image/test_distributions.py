"""The wheel and the source distribution: made here, installed in an empty virtual environment, asked for an answer."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from shortlist.kernels.native.library import TARGETS

from tests.deploy.files import ROOT

pytestmark = pytest.mark.long

PROGRAM = """
import sys, shortlist
from pathlib import Path
head = shortlist.load(sys.argv[1])
assert Path(shortlist.__file__).is_relative_to(sys.prefix), shortlist.__file__
print(head.topk([[0.5] * head.manifest.dim], 5).ids.shape, head.kernels)
"""


def read_build_requirements() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]


def make_environment(folder: Path) -> Path:
    """A new virtual environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def list_variables(path: str) -> dict[str, str]:
    """This environment with another PATH, and without what would let another installation in."""
    hidden = "PYTHON", "SHORTLIST_", "CC", "PATH"
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | {"PATH": path}


def install(python: Path, what: str, path: str, *options: str) -> None:
    command = [python, "-m", "pip", "install", "-qq", "-c", str(ROOT / "constraints.txt"), *options, what]
    subprocess.run(command, check=True, env=list_variables(path))


def ask(python: Path, bundle: Path) -> list[str]:
    """The shape of an answer, and the target that gave it."""
    command = [python, "-c", PROGRAM, str(bundle)]
    process = subprocess.run(command, check=True, env=list_variables(""), stdout=subprocess.PIPE, text=True)
    return process.stdout.strip().rsplit(" ", 1)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The wheel and the source distribution, of a copy of the sources in which nothing was built."""
    folder = tmp_path_factory.mktemp("distributions")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), tracked.split("\0")):
        (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "src" / name)
    python = make_environment(folder / "venv")
    subprocess.run([python, "-m", "pip", "install", "-qq", *read_build_requirements()], check=True)
    subprocess.run([python, "-m", "hatchling", "build", "-d", folder / "dist"], cwd=folder / "src", check=True)
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def python(distributions, tmp_path_factory):
    """The Python of an environment with the wheel, where no compiler was found."""
    python = make_environment(tmp_path_factory.mktemp("installed") / "venv")
    install(python, f"{distributions[0]}[cpu]", str(python.parent))
    return python


def test_the_wheel_is_of_any_python_and_answers_where_there_is_no_compiler(distributions, python, small_repository):
    assert "-py3-none-" in distributions[0].name
    shape, target = ask(python, small_repository / "lm" / "1")
    assert (shape, target in TARGETS) == ("(1, 5)", True)


@pytest.mark.parametrize("has_compiler", [True, False])
def test_the_source_distribution_answers_with_a_compiler_and_without(
    distributions, python, small_repository, has_compiler
):
    path = os.environ["PATH"] if has_compiler else str(python.parent)
    install(python, str(distributions[1]), path, "--no-deps", "--force-reinstall", "--no-cache-dir")
    shape, target = ask(python, small_repository / "lm" / "1")
    assert (shape, target in TARGETS) == ("(1, 5)", has_compiler)
