"""`shortlist evaluate` as a user runs it: table, JSON, CSV, warnings, refusals."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from shortlist.evaluation import evaluate

from tests.support.evaluation import CONTEXTS, SAMPLE, TARGETS
from tests.support.layers import contexts_elsewhere, run_cli

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", CONTEXTS)
    np.save(tmp_path / "y.npy", TARGETS)
    np.save(tmp_path / "far.npy", contexts_elsewhere(SAMPLE.contexts))
    save_file({"contexts": CONTEXTS, "targets": TARGETS}, tmp_path / "both.safetensors")
    return SimpleNamespace(**{path.stem: path for path in tmp_path.iterdir()}, folder=tmp_path)


def test_it_prints_a_table(narrow_head, files):
    done = run_cli("evaluate", narrow_head.folder, "--contexts", files.both, "--rows", 100, "--threads", 1)
    assert (done.returncode, done.stderr) == (0, "")
    found = evaluate(narrow_head, CONTEXTS, TARGETS, rows=100)
    assert f"{found.precision[5].mean:.4f} (" in done.stdout
    assert "rows                         100 distinct" in done.stdout
    for name in ("top-50 coverage", "KL(dense || head)", "Z~/Z", "NLL of targets", "perplexity", "answered by dense"):
        assert name in done.stdout


def test_it_prints_json_and_writes_it(narrow_head, files):
    out = files.folder / "figures.json"
    args = ("--contexts", files.x, "--targets", files.y, "--json", "--out", out, "--threads", 1)
    done = run_cli("evaluate", narrow_head.folder, *args)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content == json.loads(out.read_text())
    assert content["head_targets"]["nll"] == pytest.approx(
        evaluate(narrow_head, CONTEXTS, TARGETS).head_targets.nll, rel=1e-4
    )


def test_it_prints_csv(narrow_head, files):
    done = run_cli("evaluate", narrow_head.folder, "--contexts", files.x, "--csv", "--threads", 1)
    lines = dict(line.split(",") for line in done.stdout.splitlines())
    assert lines["figure"] == "value"
    assert float(lines["precision.5.mean"]) == pytest.approx(evaluate(narrow_head, CONTEXTS).precision[5].mean)


def test_it_warns_and_strict_fails(narrow_head, files):
    for flags, code in (([], 0), (["--strict"], 1)):
        done = run_cli("evaluate", narrow_head.folder, "--contexts", files.far, *flags, "--threads", 1)
        assert done.returncode == code
        assert "warning: these contexts are not like those" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_it_refuses_in_one_line(narrow_head, files):
    def refused(*args, code=1):
        done = run_cli("evaluate", narrow_head.folder, *args)
        assert done.returncode == code
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    save_file({"contexts": CONTEXTS}, files.folder / "alone.safetensors")
    assert "no file" in refused("--contexts", files.folder / "none.npy")
    assert "no tensor 'targets'" in refused("--contexts", files.x, "--targets", files.folder / "alone.safetensors")
    assert "for 400 contexts" in refused("--contexts", files.far, "--targets", files.y)
    assert "'-1' is not a whole number from 0" in refused("--contexts", files.x, "--seed", -1, code=2)
    assert "no folder" in refused("--contexts", files.x, "--out", files.folder / "none" / "x.json")


def test_it_helps():
    done = run_cli("evaluate", "--help")
    assert done.returncode == 0
    assert "nats" in done.stdout
