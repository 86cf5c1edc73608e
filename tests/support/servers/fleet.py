"""Servers of several processes, and clients that keep asking them."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.support.layers import RunningServer
from tests.support.servers.threads import AskingThreads

JOIN_SECONDS = 60.0


class Fleet(RunningServer):
    """`shortlist serve --processes N`."""

    def __init__(self, repository: Path, *flags: str, processes: int = 2, **options: object) -> None:
        no_idle = httpx.Limits(max_keepalive_connections=0)  # else connections go with a process that is killed
        super().__init__(repository, "--processes", str(processes), *flags, limits=no_idle, **options)

    def list_pids(self) -> dict[int, int]:
        """The latest process of each number, by what the log says."""
        begun = re.findall(r"process (\d+) \((\d+)\) has begun", "".join(list(self.log)))
        return {int(number): int(pid) for number, pid in begun}

    def read_metric(self, name: str, **labels: str) -> float:
        """The sum of the series of a name with these labels."""
        lines = [line for line in self.http.get("/metrics").text.splitlines() if re.match(rf"{name}[ {{]", line)]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(each in line for each in wanted))

    def wait_for_processes(self, count: int) -> None:
        """Wait until so many are ready."""
        self.wait_until(lambda: self.read_metric("shortlist_processes") == count)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + JOIN_SECONDS
        while not holds():
            assert time.monotonic() < end, "".join(self.log)
            time.sleep(0.05)

    def connect(self) -> http.client.HTTPConnection:
        """A connection of its own."""
        host, _, port = self.url.partition("://")[2].partition(":")
        return http.client.HTTPConnection(host, int(port), timeout=30)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> tuple[int, object]:
    """The status of a response, and its JSON."""
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    return response.status, json.loads(content) if content else None


class Clients(AskingThreads):
    """Threads that ask over a connection each, until they are stopped; who lost theirs opens another.

    failures: errors of each. wrong: answers that are not 200. lost: when connections were lost or refused.
    """

    def __init__(self, server: Fleet, contexts: np.ndarray, count: int) -> None:
        self.server, self.body = server, {"model": "lm", "contexts": contexts[:1].tolist(), "k": 3}
        self.failures: list[list[str]] = [[] for _ in range(count)]
        self.answers = [0] * count
        self.wrong: list[tuple[int, object]] = []
        super().__init__([partial(self.run, number) for number in range(count)])

    def run(self, number: int) -> None:
        connection = self.server.connect()
        while not self.stopping.is_set():
            try:
                status, content = ask(connection, "POST", "/v1/topk", self.body)
            except (OSError, http.client.HTTPException) as error:
                self.failures[number].append(repr(error))
                connection.close()
                time.sleep(0.01)
                continue
            self.answers[number] += 1
            if status != 200:
                self.wrong.append((status, content))
        connection.close()


def ask_everywhere(server: Fleet, method: str, path: str, body: object = None) -> list[tuple[int, Any]]:
    """The responses of every process: new connections go to the one with the fewest."""
    connections = [server.connect() for _ in range(4)]
    responses = [ask(connection, method, path, body) for connection in connections]
    for connection in connections:
        connection.close()
    return responses


def replace_process(server: Fleet, number: int) -> None:
    """Kill a process of two, and wait until another has taken its place."""
    os.kill(server.list_pids()[number], signal.SIGKILL)
    server.wait_for_processes(1)
    server.wait_for_processes(2)
