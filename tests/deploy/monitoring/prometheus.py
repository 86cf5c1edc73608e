"""A real Prometheus over real servers, with the deployment's own configuration at shorter intervals."""

from __future__ import annotations

import copy
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.files import ALERTS, DEPLOY, read_yaml

CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
START_SECONDS = 30.0

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus is not installed: Debian has it as package `prometheus`",
)


def list_rules() -> list[dict[str, Any]]:
    """Every alert and every recording rule of the deployment."""
    return [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]


def run_promtool(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def write_files(folder: Path, targets: list[str], interval: str, waits: str | None = None) -> Path:
    """The deployment's configuration and rules for other servers, scraped so often. waits: in place of every `for`."""
    config, rules = copy.deepcopy(read_yaml(CONFIG)), copy.deepcopy(read_yaml(ALERTS))
    if waits is not None:
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["for"] = waits
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    config["rule_files"] = [str(folder / ALERTS.name)]
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": targets}]
    (folder / ALERTS.name).write_text(yaml.safe_dump(rules))
    (folder / CONFIG.name).write_text(yaml.safe_dump(config))
    return folder / CONFIG.name


class RunningPrometheus:
    """A Prometheus of its own process, which scrapes servers at these addresses."""

    def __init__(self, folder: Path, targets: list[str], interval: str = "1s", waits: str = "1s") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        config = write_files(folder, targets, interval, waits)
        flags = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(["prometheus", *flags], stdout=self.log, stderr=self.log)
        self.http = httpx.Client(base_url=f"http://{address}", timeout=10)

    def __enter__(self) -> RunningPrometheus:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.http.get("/-/ready").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        self.__exit__()
        raise AssertionError(Path(self.log.name).read_text())

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        self.log.close()

    def ask(self, path: str, **parameters: str) -> Any:
        """What the API answers; an error of an expression fails the test."""
        answer = self.http.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        return self.ask("query", query=expression)["result"]

    def wait_for_scrape(self) -> None:
        """Wait until a target is up: before the first scrape, seconds after the start, no target is there at all."""
        end = time.monotonic() + START_SECONDS
        while not self.query("up == 1"):
            assert time.monotonic() < end, "no target was scraped"
            time.sleep(0.1)

    def list_firing(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire."""
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]
