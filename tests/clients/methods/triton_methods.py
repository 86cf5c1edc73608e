"""Every method of an unmodified tritonclient against a running server; run by a python that has tritonclient.

Arguments: host:port, case.npz, http or aio. Prints one JSON line: each check -> "ok" or what went wrong. The
checks are written once, as coroutines: the client that blocks is wrapped so that its answers can be awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys

import numpy as np
import triton_infer  # noqa: F401  # which adds its checks, as the next two do
import triton_memory  # noqa: F401
import triton_server  # noqa: F401
import tritonclient.http as blocking
import tritonclient.http.aio as waiting
from checks import run_checks


class Client:
    """A client whose calls are noted by name, and can all be awaited."""

    def __init__(self, real):
        self.real, self.called = real, set()

    def __getattr__(self, name):
        method = getattr(self.real, name)

        async def call(*arguments, **named):
            self.called.add(name)
            answer = method(*arguments, **named)
            return await answer if inspect.isawaitable(answer) else answer

        return call


async def every_method_was_called(client, case):
    """Of those that the client has; the last check, after all others."""
    methods = {name for name, _ in inspect.getmembers(type(client.real), callable) if not name.startswith("_")}
    uncalled = methods - client.called - {"close"}
    assert not uncalled, f"not called: {', '.join(sorted(uncalled))}"


async def run_async(place, case):
    async with waiting.InferenceServerClient(place) as real:
        return await run_checks(Client(real), case, last=[every_method_was_called])


def run_blocking(place, case):
    with blocking.InferenceServerClient(place, concurrency=4) as real:
        return asyncio.run(run_checks(Client(real), case, last=[every_method_was_called]))


if __name__ == "__main__":
    place, path, kind = sys.argv[1:]
    case = dict(np.load(path)) | {"place": place}
    report = asyncio.run(run_async(place, case)) if kind == "aio" else run_blocking(place, case)
    print(json.dumps(report))
