"""A process's own app is called by the others, and in front of it."""

from __future__ import annotations

import asyncio
import json

from shortlist.fleet.processes.exchange import Request, call_app
from starlette.applications import Starlette
from starlette.responses import JSONResponse

REQUEST = Request("GET", "/v1/models", b"", [], b"", ("127.0.0.1", 1))


async def fail(request):
    raise TypeError("nobody foresaw this")


async def explain(request, error):
    return JSONResponse({"error": "the log says more"}, 500)


def test_an_unforeseen_error_is_answered_as_the_app_answers_it():
    app = Starlette(exception_handlers={Exception: explain})
    app.add_route("/v1/models", fail)
    response = asyncio.run(call_app(app, REQUEST))
    assert (response.status, json.loads(response.body)) == (500, {"error": "the log says more"})
