"""schemathesis over our own OpenAPI document, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.layers import DIM, RunningServer, make_small_repository

CHECKS = (
    "not_a_server_error",
    "response_schema_conformance",
    "content_type_conformance",
    "failures_are_sentences",
)
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["1xx", "2xx", "3xx", "4xx", 501, 503]
"""
MAX_RESPONSE_SECONDS = 5


@dataclass
class Report:
    """What schemathesis printed, and how many requests it sent."""

    has_failures: bool
    cases: int
    text: str


def run(url: str, seconds: int, seed: int, folder: Path) -> Report:
    """Test all operations of the document at `url`; files of schemathesis stay in `folder`."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "--no-color", "run"]
    command += [f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--max-response-time", str(MAX_RESPONSE_SECONDS)]
    command += ["--max-time", str(seconds), "--seed", str(seed), "--generation-database", "none"]
    command += ["--phases", "coverage,fuzzing", "--continue-on-failure", "--warnings", "off"]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "tools.fuzz.hooks",
        "FUZZ_DIM": str(DIM),
        "PYTHONPATH": str(Path.cwd()),
    }
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds + 120, check=False
    )
    text = result.stdout + result.stderr
    match = re.search(r"(\d+) generated", text)
    return Report(result.returncode != 0, int(match[1]) if match else 0, text)


def main(seconds: int, seed: int) -> bool:
    """Run and print; returns True if nothing was wrong."""
    with tempfile.TemporaryDirectory() as root:
        repository, folder = Path(root, "repository"), Path(root, "work")
        folder.mkdir()
        make_small_repository(repository)
        with RunningServer(
            repository, "--shared-memory", "--model-control", "explicit", "--log-level", "warning"
        ) as server:
            report = run(server.url, seconds, seed, folder)
    start = report.text.find("== FAILURES")
    print(report.text[max(start - 34, 0) :] if report.has_failures else report.text[report.text.find("SUMMARY") - 40 :])
    print(f"openapi: {report.cases} requests, {'WRONG' if report.has_failures else 'all as documented'}")
    return not report.has_failures
