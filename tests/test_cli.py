"""The command line as typed."""

import subprocess
import sys

import numpy as np
import pytest

from tests.support import make_contexts, make_dense, run_cli


@pytest.fixture
def inputs(tmp_path):
    np.save(tmp_path / "w.npy", make_dense().weight)
    np.save(tmp_path / "c.npy", make_contexts().contexts)
    return ["--weights", tmp_path / "w.npy", "--contexts", tmp_path / "c.npy", "--threads", 1]


def test_export_check_query(tmp_path, inputs):
    out = tmp_path / "repo" / "lm" / "1"
    done = run_cli("export", *inputs, "--out", out, "--set", "basis=context", "--set", "full_view=60")
    assert done.returncode == 0, done.stderr
    assert "P@1" in done.stdout
    done = run_cli("check", out)
    assert done.returncode == 0, done.stderr
    done = run_cli("query", out, "--contexts", tmp_path / "c.npy", "-k", 3)
    assert done.returncode == 0, done.stderr
    done = run_cli("export", *inputs, "--out", out)
    assert (done.returncode, done.stderr.count("immutable")) == (1, 1)


@pytest.mark.parametrize("command", ["capture", "export", "check", "query", "serve"])
def test_help(command):
    done = run_cli(command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"shortlist {command}" in done.stdout


def test_overview():
    done = run_cli("--help")
    assert done.returncode == 0
    assert "export" in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["expert"], 2, "invalid choice: 'expert'"),
        (["export"], 2, "required"),
        (["export", "--set"], 2, "expected one argument"),
        (["check", "absent/1"], 1, "there is no bundle at absent/1"),
        (["export", "--weights", "absent.npy", "--contexts", "c", "--out", "r/lm/1"], 1, "there is no file absent.npy"),
    ],
)
def test_one_line_errors(args, code, words, tmp_path):
    done = run_cli(*args, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [("basis", "--set basis is not NAME=VALUE"), ("basis=up", "basis=up is wrong"), ("w=1", "there is no option 'w'")],
)
def test_wrong_options(inputs, tmp_path, option, words):
    done = run_cli("export", *inputs, "--out", tmp_path / "repo" / "lm" / "1", "--set", option)
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    assert not (tmp_path / "repo" / "lm" / "1").exists()


def test_not_a_number_in_the_weights(tmp_path, inputs):
    weight = make_dense().weight
    weight[7, 3] = np.nan
    np.save(tmp_path / "w.npy", weight)
    done = run_cli("export", *inputs, "--out", tmp_path / "repo" / "lm" / "1")
    assert done.returncode == 1
    assert "NaN or infinity in 1 of 300 rows, first in row 7" in done.stderr.splitlines()[-1]


def test_importing_shortlist_stays_light():
    heavy = "torch onnx onnxruntime fastapi transformers shortlist_exporter"
    code = f"import shortlist, sys; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_one_line(tmp_path):
    """As where only the base install is there."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'onnxruntime', 'uvicorn', 'shortlist_exporter'])\n"
        "from shortlist.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    for command, extra in {"export": "export", "capture": "export", "serve": "serve"}.items():
        done = subprocess.run(
            [sys.executable, "-c", code, command, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert f"pip install 'shortlist[{extra}]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
