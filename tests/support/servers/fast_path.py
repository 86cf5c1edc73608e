"""Two servers over one repository, with and without the fast path, and a client of raw bytes."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack

import numpy as np
from shortlist.server.app import create_app
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway
from shortlist.server.transport.process import configure
from uvicorn.server import ServerState

from tests.support.layers import DIM, make_contexts

ROWS = make_contexts(rows=40, seed=5).contexts
TRAVEL = 0.002  # seconds that bytes take through the loopback interface, and more
DATE = (b"date", b"Sat, 21 Nov 2026 18:00:00 GMT")
STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")
COUNTS = re.compile(r"^(shortlist_(?:requests_total|rows_total|held|\w+_count|\w+_classes_(?:sum|bucket)).*)$", re.M)


class CountedFastPath:
    """A fast path, as connections see it, whose responses are counted."""

    def __init__(self, fast_path):
        self.fast_path, self.responses = fast_path, 0
        self.learn = fast_path.learn

    def respond(self, *arguments):
        response = self.fast_path.respond(*arguments)
        self.responses += response is not None
        return response


class Server:
    """One server on a socket of this machine, with or without the fast path."""

    def __init__(self, repository, *, fast, **settings):
        self.settings = Settings(repository=repository, threads=1, inline_us=1e6, **settings)
        self.app = create_app(self.settings)
        self.service = self.app.state.service
        self.gateway = Gateway(self.app, self.service)
        self.fast_path = CountedFastPath(self.gateway.fast_path) if fast else None

    async def start(self, stack):
        await stack.enter_async_context(self.app.router.lifespan_context(self.app))
        self.config = config = configure(self.gateway, self.settings, self.service.admission, self.fast_path)
        config.load()
        self.state = ServerState()
        self.state.default_headers = [DATE]
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=self.state, app_state={}), "127.0.0.1", 0
        )
        stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        for _ in range(600):
            if self.service.is_ready():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("not ready")

    async def talk(self, parts):
        """Send each part once the server has done what it could with the one before; all that it said."""
        transport, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
        for part in parts:
            transport.write(part)
            await self.done()
        transport.close()
        return bytes(client.came) + (b"<closed>" if client.closed else b"<open>")

    async def done(self):
        """Until no connection has a request that is complete and not answered."""
        await asyncio.sleep(TRAVEL)
        while any(
            each.cycle and not (each.cycle.response_complete or each.cycle.more_body) for each in self.state.connections
        ):
            await asyncio.sleep(TRAVEL)
        await asyncio.sleep(TRAVEL)

    def counts(self):
        self.service.settle()
        return COUNTS.findall(self.service.metrics.render().decode())


class Client(asyncio.Protocol):
    """A client that stores the bytes it receives, and whether the server closed the connection."""

    closed = False

    def __init__(self):
        self.came = bytearray()

    def data_received(self, data):
        self.came += data

    def connection_lost(self, exc):
        self.closed = True


class Servers:
    """Two servers over one repository; the second has no fast path."""

    def __init__(self, repository):
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        self.both = [
            Server(repository, fast=fast, body_limit=1 << 20, max_rows=100, model_control="explicit")
            for fast in (True, False)
        ]
        for server in self.both:
            self.runner.run(server.start(self.stack))

    def talk(self, *parts):
        """The same conversation with both; what they said, and how many responses the fast path gave."""
        before = self.both[0].fast_path.responses
        responses = [self.runner.run(server.talk(parts)) for server in self.both]
        assert responses[0] == responses[1]
        assert self.both[0].counts() == self.both[1].counts()
        assert self.both[0].state.total_requests == self.both[1].state.total_requests
        for server in self.both:
            assert server.service.admission.row_shares.by_client.keys() <= {"another"}
            assert server.service.admission.bytes == 0
        return responses[0], self.both[0].fast_path.responses - before

    def warm(self, *parts):
        """Talk until the fast path responds to all of it: after one that has to wait it leaves the next ones out."""
        for _ in range(20):
            if self.talk(*parts)[1] == len(parts):
                return
        raise AssertionError("the fast path did not respond")

    def close(self):
        self.runner.run(self.stack.aclose())
        self.runner.close()


def post(path, body, *headers, length=None, version="1.1"):
    lines = [
        f"POST {path} HTTP/{version}",
        "Host: localhost",
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def infer(row=0, rows=1, k=3, model="lm", headers=(), **fields):
    numbers = np.ascontiguousarray(ROWS[row : row + rows])
    context = {"name": "context", "shape": [rows, DIM], "datatype": "FP32"}
    context["parameters"] = {"binary_data_size": numbers.nbytes}
    content = {"inputs": [context], "parameters": {"k": k, "binary_data_output": True}} | fields
    text = json.dumps(content).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{model}/infer", text + numbers.tobytes(), length, *headers)


def topk(row=0, k=3, **fields):
    content = {"model": "lm", "contexts": ROWS[row : row + 1].tolist(), "k": k} | fields
    return post("/v1/topk", json.dumps(content).encode(), "Content-Type: application/json")


def statuses(responses):
    return [int(status) for status in STATUS.findall(responses)]
