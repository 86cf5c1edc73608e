"""What is read from wrk's output."""

import json
import shutil
import subprocess
import sys

import pytest
from shortlist.errors import BadInput, ServerError

from benchmarks.http.client import wrk
from benchmarks.http.client.requests import Request
from benchmarks.http.client.wrk import Load, median_load, parse_output
from tests.support.layers import DIM, RunningServer, make_contexts

pytestmark = pytest.mark.slow

WRK_OUTPUT = """Running 1s test @ http://127.0.0.1:41337/v2/models/lm/infer
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.95ms    1.90ms   7.41ms   86.03%
    Req/Sec    14.70k     1.02k   16.02k    54.55%
  16089 requests in 1.10s, 10.05MB read
Requests/sec:  14563.46
Transfer/sec:      9.10MB
"""
FIGURES = {"requests": 3000, "duration_us": 1_500_000, "p50": 623, "p99": 6780, "p999": 7898, "max": 7900}
NO_ERRORS = dict.fromkeys(wrk.ERROR_KINDS, 0)


def output(**changes):
    return WRK_OUTPUT + json.dumps(FIGURES | NO_ERRORS | changes) + "\n"


def test_figures_of_a_clean_run():
    assert parse_output(output()) == Load(rps=2000, p50=623, p99=6780, p999=7898)


@pytest.mark.parametrize("kind", wrk.ERROR_KINDS)
def test_a_run_with_errors_is_an_error(kind):
    with pytest.raises(ServerError, match=f"7 {kind} errors among 3000 requests"):
        parse_output(output(**{kind: 7}))


@pytest.mark.parametrize("text", ["", WRK_OUTPUT, WRK_OUTPUT + "[1]\n", WRK_OUTPUT + "{}\n", output(duration_us=0)])
def test_output_without_figures_is_an_error(text):
    with pytest.raises(ServerError, match="instead of figures"):
        parse_output(text)


def test_no_answer_is_an_error():
    with pytest.raises(ServerError, match="not one request"):
        parse_output(output(requests=0))


def test_median_of_every_figure_by_itself():
    assert median_load([Load(1, 9, 5, 7), Load(3, 8, 6, 8), Load(2, 1, 7, 9)]) == Load(2, 8, 6, 8)


def test_missing_wrk_names_the_package(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BadInput, match="Debian package wrk"):
        wrk.require_wrk()


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_real_run_counts_good_answers_and_refuses_bad_ones(small_server: RunningServer):
    good = [json.dumps({"model": "lm", "contexts": [row.tolist()], "k": 3}) for row in make_contexts(2, DIM).contexts]
    headers = {"Content-Type": "application/json"}
    requests = [Request("/v1/topk", headers, body.encode()) for body in good]
    assert wrk.run_wrk(small_server.url, requests, 2, 1, 0).rps > 1
    with pytest.raises(ServerError, match="status errors"):
        wrk.run_wrk(small_server.url, [Request("/v1/topk", headers, b"{}")], 2, 1, 0)


@pytest.mark.parametrize("command", [[], ["bench"], ["soak"], ["peers"]])
def test_help_explains_everything(command):
    arguments = [sys.executable, "-m", "benchmarks.http", *command, "--help"]
    process = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert " ms" in process.stdout or "requests/s" in process.stdout.lower()
    assert "None" not in process.stdout


def test_errors_are_one_sentence(tmp_path):
    arguments = ["soak", "--quick", "--bundle", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.http", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert "there is no bundle at" in process.stderr
