"""A playground: its repository, and one to ask, in this process or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway
from shortlist_exporter.capture.language_model import LanguageModel
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts

from tests.support.layers import make_contexts, make_dense

CLASSES = 300  # of the small model
LARGE_CLASSES = 200_000
LONG_LABEL = "x" * 10_000
HOSTILE_LABELS = [
    "<b>bold</b><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\N{RIGHT-TO-LEFT OVERRIDE}thgir ot tfel\N{POP DIRECTIONAL FORMATTING}",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "two\nlines\r\n",
    LONG_LABEL,
    '"quoted", with a comma',
    " ",
]
APPROXIMATE = {"basis": "context", "width": "2", "full_view": "30"}
READY_SECONDS = 60


def make_hostile_labels(classes: int) -> list[str]:
    """Every label of V once as it is, then with numbers."""
    count = len(HOSTILE_LABELS)
    return [HOSTILE_LABELS[i % count] + (f" {i}" if i >= count else "") for i in range(classes)]


def make_repository(root: Path, model: LanguageModel) -> None:
    """`lm`: an approximate head of the model; `hostile`: an exact one with such labels; `large`: 200,000 labels."""
    contexts = Contexts(make_contexts(rows=400, dim=model.dense.dim).contexts)
    options = {"fallback": False, "threads": 1}
    export(model.dense, contexts, root / "lm" / "1", Request("svd", APPROXIMATE, labels=model.make_labels(), **options))
    labels = make_hostile_labels(model.dense.classes)
    export(model.dense, contexts, root / "hostile" / "1", Request("full", labels=labels, **options))
    names = [f"item {i}" for i in range(LARGE_CLASSES)]
    large = Request("full", labels=names, certificate=False, **options)
    export(make_dense(LARGE_CLASSES), make_contexts(rows=40), root / "large" / "1", large)


class Site:
    """The app of a playground behind the gateway, asked in this process."""

    def __init__(self, repository: Path, body: object, **settings: object) -> None:
        from shortlist_exporter.playground.app import FIXED_SETTINGS, make_app

        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        options = FIXED_SETTINGS | {"repository": repository, "threads": 1} | settings
        self.app = make_app(Settings(**options), body)
        self.runner.run(self.start())

    async def start(self) -> None:
        await self.stack.enter_async_context(self.app.router.lifespan_context(self.app))
        transport = httpx.ASGITransport(Gateway(self.app, self.app.state.service), raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")
        self.client = await self.stack.enter_async_context(client)
        deadline = time.monotonic() + READY_SECONDS
        while not self.app.state.service.is_ready():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.runner.run(self.client.get(path, **options))

    def post(self, path: str, body: object, **options: object) -> httpx.Response:
        return self.runner.run(self.client.post(path, json=body, **options))

    def ask(self, **question: object) -> dict[str, object]:
        """The answer to a question that is answered."""
        response = self.post("/playground/next", question)
        assert response.status_code == 200, response.text
        return response.json()

    def refuse(self, **question: object) -> str:
        """The sentence about a question that is refused, whatever the server does not blame itself for."""
        response = self.post("/playground/next", question)
        assert 400 <= response.status_code < 500
        return response.json()["error"]

    def close(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()


class RunningPlayground:
    """`shortlist playground` as its own process."""

    def __init__(self, *arguments: object, port: int = 0, variables: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "shortlist", "playground", *map(str, arguments), "--threads", "1"]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SHORTLIST_")}
        self.log: list[str] = []
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], stderr=subprocess.PIPE, text=True, env=inherited | (variables or {})
        )
        self.url = self.read_address()
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.wait_until_ready()

    def read_address(self) -> str:
        for line in self.process.stderr:
            self.log.append(line)
            match = re.search(r"listening on (http://\S+)", line)
            if match:
                return match[1]
        raise AssertionError("".join(self.log))

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while httpx.get(f"{self.url}/readyz").status_code != 200:
            assert time.monotonic() < deadline, "".join(self.log)
            time.sleep(0.05)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def __enter__(self) -> RunningPlayground:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.reader.join(timeout=10)
        self.process.stderr.close()
