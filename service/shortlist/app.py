"""The HTTP application: routes, bodies to arrays, arrays to bodies. Everything between knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from . import __version__
from .bodies import read_body
from .errors import ShortlistError
from .head import Head
from .metrics import Metrics
from .models import Models
from .protocol import JSON_TYPE
from .runtime import resolve_device
from .settings import Settings

T = TypeVar("T")

CLIENT_GONE = 499

log = logging.getLogger("shortlist.app")


@dataclass
class Service:
    """What the routes share: settings, models, metrics, and the threads that compute."""

    settings: Settings
    device: str
    models: Models
    metrics: Metrics
    pool: ThreadPoolExecutor
    draining: bool = False
    loading: list[asyncio.Future[None]] = field(default_factory=list)

    async def compute(self, call: Callable[[], T]) -> T:
        """Run `call` in a computing thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    def load(self) -> None:
        """Load every model, then publish readiness."""
        self.models.load(self.device, self.settings.threads, self.metrics.add_model)
        self.metrics.ready.set(0 if self.models.unready() else 1)

    def unready(self) -> str:
        """Why the service is not ready; empty when it is."""
        return "draining: the server is shutting down" if self.draining else "; ".join(self.models.unready())


class Call:
    """One request on its way: finds its model, times itself, counts itself whatever happens."""

    def __init__(self, service: Service, endpoint: str) -> None:
        """Start the clock."""
        self.service, self.endpoint, self.head = service, endpoint, None
        self.start = time.perf_counter()

    head: Head | None

    def model(self, name: str, version: int | None) -> Head:
        """The head asked for; raises NotFound, NotReady."""
        self.head = self.service.models.get(name, version)
        return self.head

    def finished(self, code: int) -> None:
        """Count the request."""
        manifest = self.head.manifest if self.head else None
        self.service.metrics.finished(self.endpoint, code, manifest, time.perf_counter() - self.start)


Answer = Callable[[Call, bytes], Any]


async def answered(request: Request, endpoint: str, answer: Answer) -> Response:
    """Read the body, let `answer(call, body)` make the response, count the outcome."""
    service: Service = request.app.state.service
    call = Call(service, endpoint)
    code = 500
    try:
        response: Response = await answer(call, await read_body(request, service.settings.body_limit))
        code = response.status_code
        return response
    except ShortlistError as error:
        code = error.status
        raise
    except ClientDisconnect:
        code = CLIENT_GONE
        return Response(status_code=CLIENT_GONE)
    finally:
        call.finished(code)


def create_app(settings: Settings) -> FastAPI:
    """The application over a repository; raises NotFound when it is empty, DeviceError when the device is absent.

    Models load in the background once the server listens; /readyz tells when they are served.
    """
    from . import open_inference, routes  # they use `answered`

    service = Service(
        settings,
        resolve_device(settings.device),
        Models(settings.repository),
        Metrics(__version__),
        ThreadPoolExecutor(settings.workers, "compute"),
    )
    app = FastAPI(
        title="Shortlist", version=__version__, description="Top-k decoding of large output layers.", lifespan=lifespan
    )
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(open_inference.router)
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load in the background; finish what was accepted before leaving."""
    service: Service = app.state.service
    loading = asyncio.get_running_loop().run_in_executor(None, service.load)
    yield
    service.draining = True
    await loading
    service.pool.shutdown(wait=True)


def error_response(status: int, sentence: str) -> Response:
    """`{"error": "<sentence>"}`."""
    return Response(orjson.dumps({"error": sentence}), status, media_type=JSON_TYPE)


async def on_shortlist_error(request: Request, error: Exception) -> Response:
    """An error raised on purpose: its own status and sentence."""
    assert isinstance(error, ShortlistError)
    return error_response(error.status, str(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """The router's own: Not Found, Method Not Allowed."""
    assert isinstance(error, HTTPException)
    response = error_response(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def on_validation_error(request: Request, error: Exception) -> Response:
    """A path or query parameter of the wrong kind."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return error_response(400, f"{'.'.join(str(part) for part in first['loc'])} is wrong: {first['msg']}")


async def on_unknown_error(request: Request, error: Exception) -> Response:
    """A fault of ours: a fixed text and an id by which the log has the traceback."""
    request_id = uuid.uuid4().hex
    log.error("request %s failed", request_id, exc_info=error)
    return error_response(500, f"internal error: the server's log has the details under request {request_id}")


HANDLERS: dict[type[Exception], Callable[[Request, Exception], Any]] = {
    ShortlistError: on_shortlist_error,
    HTTPException: on_http_error,
    RequestValidationError: on_validation_error,
    Exception: on_unknown_error,
}
