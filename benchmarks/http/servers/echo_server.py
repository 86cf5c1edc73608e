"""What the service is measured against, under the very uvicorn configuration that it runs under.

  python -m benchmarks.http.servers.echo_server ANSWER PORT bare     a bare ASGI callable: any body -> the same bytes
  python -m benchmarks.http.servers.echo_server ANSWER PORT fastapi  a FastAPI route: orjson, an array, constant ids

ANSWER is a file with an answer of the service: a line of JSON with its headers, then its body.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from shortlist.server.scheduling.admission import Admission
from shortlist.server.settings import load_settings
from shortlist.server.transport.listeners import listen
from shortlist.server.transport.process import configure

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def make_echo(headers: dict[str, str], body: bytes) -> App:
    """An ASGI app that reads the request and sends `body`."""
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    end = {"type": "http.response.body", "body": body}

    async def echo(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await complete_lifespan(receive, send)
        chunks = []
        while True:
            message = await receive()
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        b"".join(chunks)
        await send(start)
        await send(end)

    return echo


async def complete_lifespan(receive: Receive, send: Send) -> None:
    """Answer the lifespan messages: there is nothing to start or stop."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def make_route(response: dict[str, Any]) -> FastAPI:
    """The route that somebody in a hurry would write: raw body, orjson, no checks, no metrics."""
    app = FastAPI()
    ids, logprobs = np.array(response["ids"], np.int64), np.array(response["logprobs"], np.float32)
    candidates = np.array(response["scored"], np.int32)

    @app.post("/v1/topk")
    async def topk(request: Request) -> Response:
        fields = orjson.loads(await request.body())
        contexts = np.array(fields["contexts"], np.float32)
        content = {
            "model": fields["model"],
            "version": response["version"],
            "ids": ids[: len(contexts), : fields["k"]],
            "logprobs": logprobs[: len(contexts), : fields["k"]],
            "scored": candidates[: len(contexts)],
            "normalizer": response["normalizer"],
        }
        return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")

    return app


def main(path: Path, port: int, kind: str) -> None:
    """Serve until the process is stopped."""
    text, _, body = path.read_bytes().partition(b"\n")
    app = make_echo(orjson.loads(text), body) if kind == "bare" else make_route(orjson.loads(body))
    settings = load_settings(port=port)
    with listen(settings.host, settings.port) as listener:
        uvicorn.Server(configure(app, settings, Admission(settings.queue_rows, settings.queue_bytes))).run([listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
