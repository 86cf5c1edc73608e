"""The README's commands, as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.layers import RunningServer

README = Path(__file__).parents[2] / "README.md"
TRITON = Path(__file__).parents[2] / "build" / "venvs" / "triton" / "bin" / "python"


def blocks():
    """(language, code) of the section that makes, loads and serves a layer, up to the server's start and after it."""
    section = README.read_text().partition("## Your own layer")[2].partition("## Meaning of the answers")[0]
    found = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    start = next(i for i, (_, code) in enumerate(found) if "shortlist serve" in code)
    return found[:start], found[start + 1 :]


def run(language, code, folder):
    python = TRITON if "tritonclient" in code else Path(sys.executable)
    command = [python, "-c", code] if language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_your_own_layer(tmp_path):
    before, after = blocks()
    for language, code in before:
        assert language in ("python", "bash")
        run(language, code, tmp_path)
    with RunningServer(tmp_path / "repo") as server:
        for language, code in after:
            if "tritonclient" in code and not TRITON.exists():
                continue  # tests/clients says so
            place = server.url.removeprefix("http://")
            here = code.replace("127.0.0.1:8000", place).replace("localhost:8000", place)
            assert run(language, here, tmp_path)


def test_files_that_it_names_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
