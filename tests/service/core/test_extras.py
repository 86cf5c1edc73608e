"""What is missing on an operating system or in an environment is one sentence."""

import subprocess
import sys

import pytest
from shortlist.cli.dispatch import COMMANDS
from shortlist.core.extras import POSIX_MODULES, require
from shortlist.errors import MissingExtra

WITHOUT_POSIX = f"import sys; sys.modules.update(dict.fromkeys({POSIX_MODULES}))\n"
ONLY_CLIENTS = "heads and servers do not run on Windows, only clients do: use Linux"


def run_without_posix(code):
    command = [sys.executable, "-c", WITHOUT_POSIX + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_clients_run_where_heads_do_not():
    code = "import shortlist; print(shortlist.Client, shortlist.AsyncClient)\nshortlist.load('bundle')"
    process = run_without_posix(code)
    assert "shortlist.client.client.Client" in process.stdout
    assert process.stderr.splitlines()[-1] == f"shortlist.errors.Unsupported: {ONLY_CLIENTS}"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_where_heads_do_not(command):
    process = run_without_posix(f"from shortlist.cli import main; sys.exit(main(['{command}', 'bundle']))")
    assert process.returncode == 1
    assert process.stderr == f"shortlist {command}: {ONLY_CLIENTS}\n"


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"^uvicorn is not installed: run `pip install 'shortlist\[serve\]'`$"):
        require("uvicorn")
