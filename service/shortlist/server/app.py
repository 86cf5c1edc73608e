"""The FastAPI app: /v1, /v2, health, metrics, docs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from shortlist import __version__
from shortlist.core.checks import cut
from shortlist.errors import ShortlistError
from shortlist.server.engine.endpoints import ENDPOINT_NAMES
from shortlist.server.engine.service import MakeReleases, Service
from shortlist.server.lifecycle.releases import Releases
from shortlist.server.messages.request_ids import REQUEST_ID, read_request_ids
from shortlist.server.messages.responses import make_error_response, make_json_response, to_starlette

from .pages.overview import add_overview
from .routes import inference, schemas, v1, v1_lists, v1_recall, v2, v2_operations, v2_repository
from .routes.catalogue import items
from .routes.docs import add_docs
from .routes.health import OPEN_PATHS, health
from .settings import Settings

FILE_VERBS = ("GET", "HEAD")  # of folders of files


class App(FastAPI):
    """FastAPI, whose document also describes the bodies that routes read themselves."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = schemas.add_path_parameters(schemas.add_request_schemas(super().openapi()))
            wants_keys = self.state.service.access.keys is not None
            self.openapi_schema = schemas.add_security(document, OPEN_PATHS) if wants_keys else document
        return self.openapi_schema


def create_app(
    settings: Settings, registry: CollectorRegistry | None = None, make_releases: MakeReleases = Releases
) -> FastAPI:
    """The app of one repository; `registry` collects its metrics, `make_releases` makes what loads its models.

    Models are loaded when the app starts. Raises NotFound for an empty repository, DeviceError, BadInput
    where API keys cannot be read.
    """
    service = Service(settings, registry, ENDPOINT_NAMES, make_releases)
    app = App(
        title="Shortlist",
        summary="Top-k decoding of large output layers.",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    v1_lists_routers = v1_lists.router, v1_lists.sets_router
    v1_routers = inference.make_router(), v1.router, *v1_lists_routers, v1_recall.router, items.router
    routers = *v1_routers, v2_repository.router, v2_operations.router, v2.router, health
    for router in routers:
        app.include_router(router)
    add_docs(app)
    if settings.overview:
        add_overview(app)
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    app.state.routes = [route for route in routes if isinstance(route, Route)]
    add_error_handlers(app)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load and serve while the app runs."""
    async with app.state.service.running():
        yield


def add_error_handlers(app: FastAPI) -> None:
    """Every failure on every route is `{"error": "<one sentence>"}`."""
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ShortlistError, on_error)
    app.add_exception_handler(Exception, on_error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """No route has the request's path, or those that have it do not take its verb."""
    assert isinstance(error, HTTPException)
    sentence, headers = error.detail, dict(error.headers or {})
    path = cut(request.scope["path"])
    if error.status_code == HTTPStatus.NOT_FOUND:
        sentence = f"there is no route '{path}': /docs lists those there are"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        verbs = list_verbs(request.app.state.routes, request.scope["path"]) or FILE_VERBS
        sentence = f"'{path}' does not take {cut(request.method)}: use {' or '.join(verbs)}"
        headers["Allow"] = ", ".join(verbs)
    request_id = read_request_ids(dict(request.scope["headers"])).request
    if request_id:
        headers[REQUEST_ID.decode()] = request_id
    return make_json_response({"error": sentence}, error.status_code, headers)


def list_verbs(routes: Sequence[Route], path: str) -> list[str]:
    """The verbs that the routes of a path take; none where it is in a folder of files."""
    return sorted({verb for route in routes if route.path_regex.match(path) for verb in route.methods or ()})


async def on_error(request: Request, error: Exception) -> Response:
    return to_starlette(make_error_response(error, read_request_ids(dict(request.scope["headers"]))))
