"""The page, and what it asks of its process beside what every server answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from shortlist.errors import BadInput
from shortlist.server.app import on_error
from shortlist.server.pages.overview import FILES_PATH as SHARED_PATH
from shortlist.server.pages.overview import FOLDER as SHARED_FOLDER
from shortlist.server.pages.overview import SECURITY_HEADERS
from shortlist.server.routes.dependencies import ASK, READ, get_service
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from .compare import compare
from .heads import list_heads, take_vectors
from .schemas import Answer, Overview, Question, Snippets, Vectors
from .session import Reading, Session
from .snippets import encode, write_body, write_snippets

FOLDER = Path(__file__).with_name("page")
PATH = "/playground"
TOPK_PATH = "/v1/topk"
OWN_URL = "http://playground"  # of the app in this process: no socket is between


class ServiceClient:
    """Asks the app in this process as a client would, so that a question is checked, counted and sampled as others."""

    def __init__(self, app: FastAPI) -> None:
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=OWN_URL, timeout=None)

    async def topk(self, body: dict[str, Any], key: str | None) -> httpx.Response:
        """The response to a request of /v1/topk. key: what the page sent as `Authorization`."""
        headers = {"content-type": "application/json"} | ({} if key is None else {"authorization": key})
        return await self.client.post(TOPK_PATH, content=encode(body), headers=headers)


def add_page(app: FastAPI) -> None:
    """Add the page at `/` with its files, and those of the overview's that it uses."""

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        """The playground."""
        return FileResponse(FOLDER / "index.html", headers=SECURITY_HEADERS)

    app.mount(f"{PATH}/page", StaticFiles(directory=FOLDER))
    app.mount(SHARED_PATH, StaticFiles(directory=SHARED_FOLDER))


async def on_invalid(request: Request, error: Exception) -> Response:
    """A body that is no question: one sentence, as of every other failure."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return await on_error(request, BadInput(f"the body is no JSON: {first['ctx']['error']}"))
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    reason = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    return await on_error(request, BadInput(f"{place} cannot be used: {reason}"))


def add_routes(app: FastAPI, session: Session) -> None:
    """Add what the page asks."""
    router, client = APIRouter(prefix=PATH, tags=["playground"]), ServiceClient(app)

    @router.get("/heads", dependencies=[READ])
    async def heads(request: Request) -> Overview:
        """The heads that are ready, and the model that reads text."""
        return await asyncio.to_thread(list_heads, get_service(request), session.body)

    @router.post("/next", dependencies=[ASK], response_model=Answer)
    async def following(request: Request, question: Question) -> Answer | Response:
        """The k best classes by the head and by the dense layer, side by side, and the time of both."""
        reading = await asyncio.to_thread(session.read, get_service(request), question)
        response = await client.topk(make_body(reading) | {"risk": True}, request.headers.get("authorization"))
        if response.is_error:
            return Response(response.content, response.status_code, media_type="application/json")
        comparison = await asyncio.to_thread(compare, reading.head, reading.query)
        return session.answer(reading, response.json(), comparison)

    @router.post("/snippets", dependencies=[ASK])
    async def commands(request: Request, question: Question) -> Snippets:
        """Commands that ask the same."""
        service = get_service(request)
        reading = await asyncio.to_thread(session.read, service, question)
        url, wants_key = str(request.base_url).rstrip("/"), service.access.keys is not None
        return write_snippets(url, make_body(reading), question, key=wants_key)

    @router.get("/vectors", dependencies=[READ])
    async def vectors(request: Request, model: str, version: int, row: int = 0) -> Vectors:
        """A context vector that the head was not fitted on."""
        contexts = take_vectors(get_service(request).models.find(model, version), row, 1)
        return Vectors(text=encode(contexts), rows=len(contexts))

    app.include_router(router)
    app.add_exception_handler(RequestValidationError, on_invalid)


def make_body(reading: Reading) -> dict[str, Any]:
    """The request to /v1/topk of a reading."""
    return write_body(reading.model.name, reading.model.version, reading.query)
