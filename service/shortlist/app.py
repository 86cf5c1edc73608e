"""The FastAPI app: /v1, /v2, health, metrics, docs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from . import __version__, management, open_inference, routes, schemas, server_routes
from .bodies import error_response, json_response
from .errors import ShortlistError
from .routes import service_of
from .service import Service
from .settings import Settings

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

health = APIRouter(tags=["health"], responses=schemas.FAILURES)


class App(FastAPI):
    """FastAPI, whose document also describes the bodies that routes read themselves."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = schemas.with_requests(super().openapi())
        return self.openapi_schema


def create_app(settings: Settings, registry: CollectorRegistry | None = None) -> FastAPI:
    """The app of one repository; `registry` collects its metrics.

    Models are loaded when the app starts. Raises NotFound for an empty repository, DeviceError.
    """
    service = Service(settings, registry)
    app = App(
        title="Shortlist",
        summary="Top-k decoding of large output layers.",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    for router in (routes.router, management.router, server_routes.router, open_inference.router, health):
        app.include_router(router)
    add_error_handlers(app)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load and serve while the app runs."""
    async with app.state.service.running():
        yield


@health.head("/healthz", include_in_schema=False)
@health.get("/healthz")
async def healthz() -> Response:
    """200 while the process answers."""
    return json_response({"live": True, "version": __version__})


@health.head("/readyz", include_in_schema=False)
@health.get("/readyz")
async def readyz(request: Request) -> Response:
    """200 once every bundle is warmed and its canary passed; 503 with the reason before, and while draining."""
    service_of(request).check_ready()
    return json_response({"ready": True})


@health.head("/metrics", include_in_schema=False)
@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    service = service_of(request)
    service.settle()
    return Response(service.metrics.render(), media_type=METRICS_TYPE)


def add_error_handlers(app: FastAPI) -> None:
    """Every failure on every route is `{"error": "<one sentence>"}`."""
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ShortlistError, on_error)
    app.add_exception_handler(Exception, on_error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """No such route, or the wrong verb for it."""
    assert isinstance(error, HTTPException)
    return json_response({"error": error.detail}, error.status_code, dict(error.headers or {}))


async def on_error(request: Request, error: Exception) -> Response:
    """An error of ours, or one that nobody foresaw."""
    return error_response(error)
