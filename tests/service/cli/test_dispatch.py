"""The command line as typed."""

import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
import shortlist
from shortlist.cli.dispatch import fill_standard_streams, main

from tests.support.layers import call_cli, make_contexts, make_dense, run_cli

pytestmark = pytest.mark.slow


@pytest.fixture
def inputs(tmp_path):
    np.save(tmp_path / "w.npy", make_dense().weight)
    np.save(tmp_path / "c.npy", make_contexts().contexts)
    return ["--weights", tmp_path / "w.npy", "--contexts", tmp_path / "c.npy", "--threads", 1, "--no-report"]


def test_export_check_query(tmp_path, inputs):
    out = tmp_path / "repo" / "lm" / "1"
    with_report = [word for word in inputs if word != "--no-report"]
    process = run_cli("export", *with_report, "--out", out, "--set", "opened=200", "--set", "full_view=60")
    assert process.returncode == 0, process.stderr
    assert "P@1" in process.stdout
    assert (out / "report" / "index.html").is_file()
    process = run_cli("check", out)
    assert process.returncode == 0, process.stderr
    process = call_cli("query", out, "--contexts", tmp_path / "c.npy", "-k", 3)
    assert process.returncode == 0, process.stderr
    process = call_cli("export", *inputs, "--out", out)
    assert (process.returncode, process.stderr.count("immutable")) == (1, 1)


def test_closed_streams_are_given_to_no_file(tmp_path, inputs):
    """What libraries print would be written into a file or a socket that had their numbers."""
    out = tmp_path / "repo" / "lm" / "1"
    words = [sys.executable, "-m", "shortlist", "export", *inputs, "--method", "full", "--out", out]
    assert subprocess.run(["sh", "-c", f"{shlex.join(map(str, words))} >&- 2>&-"], check=False).returncode == 0
    assert run_cli("check", out).returncode == 0


def test_open_streams_need_no_null_device(monkeypatch):
    """A root folder of its own may have none."""
    monkeypatch.setattr(os, "devnull", "/nowhere/null")
    fill_standard_streams()


@pytest.mark.parametrize("command", ["capture", "export", "tune", "report", "check", "query", "diff", "serve"])
def test_help(command):
    process = call_cli(command, "--help")
    assert process.returncode == 0, process.stderr
    assert f"shortlist {command}" in process.stdout


def test_help_of_a_process():
    process = run_cli("export", "--help")
    assert (process.returncode, process.stderr) == (0, "")
    assert "shortlist export" in process.stdout


def test_version():
    process = run_cli("--version")
    assert (process.returncode, process.stdout) == (0, f"shortlist {shortlist.__version__}\n")


def test_help_of_tune_names_no_option_that_it_lacks():
    text = call_cli("tune", "--help").stdout
    assert "random seed (default: 0)" in text
    assert "--like" not in text
    assert "--like" in call_cli("export", "--help").stdout


def test_list_of_commands():
    process = run_cli("--help")
    assert process.returncode == 0
    assert "export" in process.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["expert"], 2, "invalid choice: 'expert'"),
        (["export"], 2, "required"),
        (["export", "--set"], 2, "expected one argument"),
        (["check", "absent/1"], 1, "there is no bundle at absent/1"),
        (["check", "absent/1", "--threads", "-3"], 2, "'-3' is not a whole number from 1"),
        (["export", "--threads", "x"], 2, "'x' is not a whole number from 1"),
        (["export", "--max-k", "0"], 2, "'0' is not a whole number from 1"),
        (["export", "--seed", "-1"], 2, "'-1' is not a whole number from 0"),
        (["export", "--min-p1", "99"], 2, "'99' is not a share"),
        (["export", "--min-p5", "nan"], 2, "'nan' is not a share"),
        (["export", "--min-p5", "some"], 2, "'some' is not a share"),
        (["export", "--min-pk", "20"], 2, "'20' is not K=SHARE"),
        (["export", "--min-pk", "0=0.9"], 2, "'0' is not a whole number from 1"),
        (["tune", "--target-p1", "1.01"], 2, "'1.01' is not a share"),
        (["tune", "--target-pk", "10"], 2, "'10' is not K=SHARE"),
        (["tune", "--max-memory", "-1"], 2, "'-1' is not a number over 0"),
        (["export", "--weights", "absent.npy", "--contexts", "c", "--out", "r/lm/1"], 1, "there is no file absent.npy"),
    ],
)
def test_one_line_errors(args, code, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = call_cli(*args)
    assert process.returncode == code
    assert words in process.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["expert"], 2, "invalid choice: 'expert'"),
        (["export", "--set"], 2, "expected one argument"),
        (["check", "absent/1"], 1, "there is no bundle at absent/1"),
    ],
)
def test_one_line_errors_of_a_process(args, code, words, tmp_path):
    process = run_cli(*args, cwd=tmp_path)
    assert process.returncode == code
    assert words in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [("width", "--set width is not NAME=VALUE"), ("width=up", "width=up is wrong"), ("w=1", "there is no option 'w'")],
)
def test_wrong_options(inputs, tmp_path, option, words):
    process = call_cli("export", *inputs, "--out", tmp_path / "repo" / "lm" / "1", "--set", option)
    assert process.returncode == 1
    assert words in process.stderr.splitlines()[-1]
    assert not (tmp_path / "repo" / "lm" / "1").exists()


def test_not_a_number_in_the_weights(tmp_path, inputs):
    weight = make_dense().weight
    weight[7, 3] = np.nan
    np.save(tmp_path / "w.npy", weight)
    process = call_cli("export", *inputs, "--out", tmp_path / "repo" / "lm" / "1")
    assert process.returncode == 1
    assert "NaN or infinity in 1 of 300 rows, first in row 7" in process.stderr.splitlines()[-1]


def test_labels_nested_too_deeply(tmp_path, inputs):
    (tmp_path / "labels.json").write_text("[" * 250_000)
    process = call_cli("export", *inputs, "--out", tmp_path / "lm" / "1", "--labels", tmp_path / "labels.json")
    assert process.returncode == 1
    sentence = "cannot be read: give a JSON list of V strings, or V lines, in UTF-8"
    assert process.stderr.splitlines()[-1].endswith(sentence)


def test_contexts_of_zeros(tmp_path, inputs):
    np.save(tmp_path / "c.npy", np.zeros((40, 16), np.float32))
    process = call_cli("export", *inputs, "--out", tmp_path / "lm" / "1", "--set", "width=4")
    assert process.returncode == 0, process.stderr
    assert not (tmp_path / "lm" / "1" / "report").exists()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_output_is_no_error(small_repository, monkeypatch, unbuffered):
    """As with `| head`: the pipe is closed when something is written to it, at once or at the end."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "shortlist", "check", small_repository / "lm" / "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1
    process.stderr.close()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(small_repository, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shortlist", "check", small_repository / "lm" / "1"]
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith("shortlist check: the system refused (No space left on device)")
    assert len(process.stderr.splitlines()) == 1, process.stderr


def test_a_file_that_may_not_be_read(monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "x.npy")

    monkeypatch.setattr("shortlist.cli.check.open_bundle", refuse)
    assert main(["check", "lm/1"]) == 1
    assert capsys.readouterr().err.startswith("shortlist check: x.npy cannot be used (Permission denied)")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("onnxruntime.so: failed to map segment from shared object"),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, capsys, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr("shortlist.cli.check.open_bundle", refuse)
    assert main(["check", "lm/1"]) == 1
    sentence = capsys.readouterr().err
    assert sentence.startswith(f"shortlist check: the system refused ({type(error).__name__}")
    assert sentence.endswith("give this process more memory or threads, then run the same command again\n")


def test_other_errors_are_not_hidden(monkeypatch):
    def fail(*_):
        raise RuntimeError("an error in the program")

    monkeypatch.setattr("shortlist.cli.check.open_bundle", fail)
    with pytest.raises(RuntimeError, match="an error in the program"):
        main(["check", "lm/1"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_compiled_code_turns_into_an_error_is_a_stop(number):
    """numpy's comparison of structured arrays, for one, raised a TypeError in place of KeyboardInterrupt."""
    code = (
        "import signal, sys\n"
        "import shortlist.cli.check\n"
        "from shortlist.cli.dispatch import main\n"
        "def stop(*_):\n"
        "    try:\n"
        f"        signal.raise_signal({int(number)})\n"
        "    except KeyboardInterrupt:\n"
        "        raise TypeError from None\n"
        "shortlist.cli.check.run = stop\n"
        "sys.exit(main(['check', 'lm/1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-number, "shortlist check: stopped\n")


def test_importing_shortlist_stays_light():
    heavy = "torch onnx onnxruntime fastapi transformers shortlist_exporter"
    code = f"import shortlist, sys; print([name for name in '{heavy}'.split() if name in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_a_client_waits_for_no_manifest():
    code = "import shortlist, sys; shortlist.Client; shortlist.AsyncClient; print('pydantic' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"


def test_a_missing_extra_is_one_line(tmp_path):
    """As where only the base install is there."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'onnxruntime', 'uvicorn', 'shortlist_exporter'])\n"
        "from shortlist.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    for command, extra in {"export": "export", "capture": "export", "serve": "serve"}.items():
        process = subprocess.run(
            [sys.executable, "-c", code, command, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert process.returncode == 1
        assert f"pip install 'shortlist[{extra}]'" in process.stderr
        assert len(process.stderr.splitlines()) == 1, process.stderr
