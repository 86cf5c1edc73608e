"""The commands that the page shows, run as somebody would who copied them."""

import json
import os
import shutil
import subprocess
import sys

import httpx
import pytest
from shortlist_exporter.playground.snippets import write_curl, write_python

pytestmark = pytest.mark.slow

QUESTION = {"model": "lm", "text": "w3 'w4' \"w5\" $HOME", "k": 4, "ban": ["w1", "w2"]}


def run_shell(command, **variables):
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60, env=os.environ | variables
    )
    return done.stdout


@pytest.mark.parametrize("more", [{}, {"exact": True}, {"text": None, "contexts": [[0.25] * 16, [-1.5] * 16]}])
def test_both_answer_as_the_page(playground, more):
    question = QUESTION | more
    rows = httpx.post(f"{playground.url}/playground/next", json=question).json()["rows"]
    commands = httpx.post(f"{playground.url}/playground/snippets", json=question).json()
    ids = [[candidate["id"] for candidate in row["head"]["candidates"]] for row in rows]
    if shutil.which("curl"):
        assert json.loads(run_shell(commands["curl"]))["ids"] == ids
    program = commands["python"] + "\n    import json; print(json.dumps(top.ids.tolist()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == ids


def test_keys_come_from_a_variable():
    body = {"model": "lm", "version": 1, "contexts": [[1.0]], "k": 1}
    curl = write_curl("https://localhost:1", body, key=True)
    shown = run_shell(curl.replace("curl -s", "printf '%s|'", 1), SHORTLIST_KEY="secret of the test")
    assert "|Authorization: Bearer secret of the test|" in shown
    program = write_python("https://localhost:1", body, "a\n'text'", key=True)
    compile(program, "program", "exec")
    assert "api_key=os.environ['SHORTLIST_KEY']" in program
