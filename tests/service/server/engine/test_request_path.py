"""One request's way through the packages: transport, engine, codecs, scheduling, head, codecs, and never back.

Observed by `sys.setprofile`: every call of a Python function of ours while one binary request is served, as the package
that the function belongs to, equal neighbours collapsed. So a package counts whenever one of its functions, be it a
property, is entered after one of another package; the way back by returns does not count, nor do containers and
arithmetic: the generated `__init__` of a record, a lookup in a `BoundedCache`, the update of a `ClippedAverage`. The
request is one whose JSON was seen before, which is what a client sends all day.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from shortlist.server.app import create_app
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway
from shortlist.server.transport.process import configure
from uvicorn.server import ServerState

from tests.support.servers.fast_path import infer

MAX_CHANGES = 16
MODELS = "shortlist.server.models"  # the registry in which the engine looks models up
OVER_HEAD = ("transport", "routes", "engine", "codecs", "scheduling", "messages", "metrics")
HEAD_AND_BELOW = ("shortlist.head", "shortlist.plans", "shortlist.kernels", "shortlist.runtime", "shortlist.core")
IGNORED_MODULES = ("shortlist.server.messages.bounded_cache", "shortlist.core.moving_average")
GENERATED_FILE = "<string>"  # where a dataclass's `__init__` says that it was written


def package_of(code, module):
    """The package of the lists above that a function belongs to; None for those of others, and what does not count."""
    if code.co_filename == GENERATED_FILE or module in IGNORED_MODULES:
        return None
    if module == MODELS:
        return "engine"
    if module.startswith(HEAD_AND_BELOW):
        return "head"
    return next((name for name in OVER_HEAD if module.startswith(f"shortlist.server.{name}")), None)


class Call(NamedTuple):
    package: str
    name: str


class Transport(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self):
        super().__init__()
        self.written = bytearray()

    def write(self, data):
        self.written += data

    def is_closing(self):
        return False

    def set_write_buffer_limits(self, high=None, low=None):
        """Whatever is written is sent."""


class TracedServer:
    """A server without sockets, and one connection to it."""

    async def start(self, stack, repository):
        settings = Settings(repository=repository, threads=1, inline_us=1e6)
        app = create_app(settings)
        await stack.enter_async_context(app.router.lifespan_context(app))
        while not app.state.service.is_ready():
            await asyncio.sleep(0.05)
        gateway = Gateway(app, app.state.service)
        config = configure(gateway, settings, app.state.service.admission, gateway.fast_path)
        config.load()
        self.connection = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    async def send(self, *parts):
        """Send a request in parts; the status of its response."""
        self.transport.written.clear()
        for part in parts:
            self.connection.data_received(part)
        for _ in range(10_000):
            if self.connection.cycle is None or self.connection.cycle.response_complete:
                break
            await asyncio.sleep(0)
        return int(self.transport.written.split()[1])

    async def trace(self, *parts):
        """The functions of ours that are called for a request, as (package, name)."""
        calls = []

        def note(frame, event, _):
            package = package_of(frame.f_code, frame.f_globals.get("__name__", "")) if event == "call" else None
            if package is not None:
                calls.append(Call(package, frame.f_code.co_name))

        sys.setprofile(note)
        try:
            status = await self.send(*parts)
        finally:
            sys.setprofile(None)
        assert status == 200
        return calls

    async def trace_alone(self, *parts):
        """The same where no other task of the server ran in between, as one may that comes round by the clock."""
        return min([await self.trace(*parts) for _ in range(3)], key=len)


@pytest.fixture(scope="module")
def traces(small_repository):
    """The calls of one request by the fast path, and by the asynchronous way."""

    async def scenario():
        async with AsyncExitStack() as stack:
            server, request = TracedServer(), infer(k=3)
            await server.start(stack, small_repository)
            for _ in range(5):  # what rows take, the head and the JSON are known
                await server.send(request)
                await server.send(request[:50], request[50:])
            return {
                "fast path": await server.trace_alone(request),
                "asynchronous": await server.trace_alone(request[:50], request[50:]),
            }

    return asyncio.run(scenario())


def packages(calls):
    return [package for package, _ in itertools.groupby(call.package for call in calls)]


@pytest.mark.parametrize("way", ["fast path", "asynchronous"])
def test_a_request_changes_packages_at_most_so_often(traces, way):
    visits = packages(traces[way])
    assert visits[0] == "transport"
    assert len(visits) - 1 <= MAX_CHANGES, visits


def test_a_request_goes_through_the_packages_in_order(traces):
    expected = ["transport", "engine", "codecs", "scheduling", "head", "codecs"]
    for calls in traces.values():
        visits = iter(packages(calls))
        assert all(package in visits for package in expected), packages(calls)


STAGES = {
    "engine": "decode_infer",
    "scheduling": "compute_inline",
    "codecs": "encode",
    "metrics": "note_request",
}


@pytest.mark.parametrize(("way", "driver"), [("fast path", "respond_inline"), ("asynchronous", "respond")])
def test_each_stage_is_called_once_and_none_calls_the_pipeline_back(traces, way, driver):
    calls = traces[way]
    assert calls.count(Call("engine", driver)) == 1
    for package, stage in STAGES.items():
        assert calls.count(Call(package, stage)) == 1
    last_engine = max(index for index, call in enumerate(calls) if call.package == "engine")
    first_codec = min(index for index, call in enumerate(calls) if call.package == "codecs")
    assert last_engine < first_codec  # the engine calls; nothing below calls the engine
