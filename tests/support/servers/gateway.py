"""A gateway beside the bare app, and requests for both."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import httpx
from shortlist.server.app import create_app
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway

from tests.support.layers import DIM, make_contexts

ROWS = make_contexts(rows=40, seed=5).contexts
LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/lm/infer"


class Pair:
    """One app, asked through the gateway and through its routes, in this process."""

    def __init__(self, repository, **settings):
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        self.app = create_app(Settings(repository=repository, threads=1, **settings))
        self.service = self.app.state.service
        self.runner.run(self.start())

    async def start(self):
        await self.stack.enter_async_context(self.app.router.lifespan_context(self.app))
        self.clients = [
            await self.stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://localhost"
                )
            )
            for app in (Gateway(self.app, self.service), self.app)
        ]
        for _ in range(600):
            if self.service.is_ready():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("not ready")

    def ask(self, path, content=b"", headers=None, method="POST", way=0):
        return self.runner.run(self.clients[way].request(method, path, content=content, headers=headers))

    def both(self, path, content=b"", headers=None, method="POST"):
        """The same answer, both ways."""
        one, other = (self.ask(path, content, headers, method, way) for way in (0, 1))
        assert one.content == other.content
        assert one.status_code == other.status_code
        assert one.headers.raw == other.headers.raw
        return one

    def close(self):
        self.runner.run(self.stack.aclose())
        self.runner.close()


def binary(rows, datatype="FP32", k=3, fields=None, **parameters):
    """An infer request, and the length of its JSON."""
    context = {"name": "context", "shape": list(rows.shape), "datatype": datatype}
    context["parameters"] = {"binary_data_size": rows.nbytes}
    parameters = {"k": k, "binary_data_output": True} | parameters
    text = json.dumps({"inputs": [context], "parameters": parameters} | (fields or {})).encode()
    return text, rows.tobytes()


def ask_binary(pair, text, blob, path=INFER, **headers):
    return pair.both(path, text + blob, {LENGTH: str(len(text))} | headers)


def as_json(**fields):
    content = {"model": "lm", "contexts": ROWS[:3].tolist(), "k": 3} | fields
    return json.dumps({name: value for name, value in content.items() if value is not ...}).encode()


def tensor(**fields):
    return {"name": "context", "shape": [2, DIM], "datatype": "FP32", "data": ROWS[:2].tolist()} | fields


def in_json(*inputs, **fields):
    return json.dumps({"inputs": inputs or [tensor()]} | fields).encode()
