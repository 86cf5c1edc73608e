"""The code of README and of the guides in docs/, run as it is written: first without a server, then with one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRITON = ROOT / "build" / "venvs" / "triton" / "bin" / "python"
PORT = re.compile(r"(127\.0\.0\.1|localhost):8000")

# Pages and their sections, in the order in which a reader meets them; a page's later section may use earlier files.
IN_PROCESS = (
    ("README.md", "Your own layer"),
    ("docs/python.md", "A head"),
    ("docs/python.md", "Many rows"),
    ("docs/python.md", "An evaluation"),
    ("docs/python.md", "An export"),
    ("docs/decoding.md", "A search"),
    ("docs/decoding.md", "The step"),
    ("docs/decoding.md", "Frames of a recogniser"),
    ("docs/generate.md", "Exact draws"),
    ("docs/generate.md", "Draft and verify"),
    ("docs/methods.md", "`ds`"),
    ("docs/recommend.md", "Names, what was seen, scores"),
    ("docs/cli.md", "A walk through"),
)
OVER_HTTP = (
    ("README.md", "Over HTTP"),
    ("docs/python.md", "A client"),
    ("docs/decoding.md", "Wide beams with legal lists"),
    ("docs/http.md", "`/v1/topk` and `/v1/score`"),
    ("docs/http.md", "Names"),
    ("docs/http.md", "`/v2/models/{name}/infer`"),
    ("docs/catalogues.md", "Changes while it is served"),
    ("docs/catalogues.md", "A version with the changes"),
)


def blocks(page, section):
    """(language, code) of the python and bash blocks of a section."""
    text = (ROOT / page).read_text("utf-8")
    start = text.index(f"\n## {section}\n")
    code = re.findall(r"```(python|bash)\n(.*?)```", text[start:].split("\n## ")[1], re.DOTALL)
    assert code, f"{page} has no code in its section {section}"
    return code


def run(language, code, folder):
    python = TRITON if "tritonclient" in code else Path(sys.executable)
    command = [python, "-c", code] if language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )
    assert process.returncode == 0, f"{code}\n{process.stderr}"
    return process.stdout


def test_code_as_written(tmp_path):
    for page, section in IN_PROCESS:
        for language, code in blocks(page, section):
            run(language, code, tmp_path)
    with RunningServer(tmp_path / "repo", "--item-changes", str(tmp_path / "changes")) as server:
        address = server.url.removeprefix("http://")
        for page, section in OVER_HTTP:
            for language, code in blocks(page, section):
                if "tritonclient" in code and not TRITON.exists():
                    continue  # tests/clients says so
                if "shortlist serve" not in code:
                    output = run(language, PORT.sub(address, code), tmp_path)
                    assert output
                    assert '"error"' not in output
