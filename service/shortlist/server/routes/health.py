"""/healthz, /readyz and /metrics: whether the process lives, whether it is ready, and its Prometheus metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from shortlist import __version__
from shortlist.server.messages.responses import make_json_response

from . import schemas
from .dependencies import OBSERVE, check_ready, get_service

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
OPEN_PATHS = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")  # which want no API key
health = APIRouter(tags=["health"], responses=schemas.FAILURE_RESPONSES)


@health.head("/healthz", include_in_schema=False)
@health.get("/healthz", responses={200: {"model": schemas.Health}})
async def healthz() -> Response:
    """200 while the process answers."""
    return make_json_response({"live": True, "version": __version__})


@health.head("/readyz", include_in_schema=False)
@health.get("/readyz", responses={200: {"model": schemas.Health}})
async def readyz(request: Request) -> Response:
    """200 once every bundle is warmed and its canary passed; 503 with the reason before, and while draining."""
    check_ready(request)
    return make_json_response({"ready": True})


@health.head("/metrics", dependencies=[OBSERVE], include_in_schema=False)
@health.get("/metrics", dependencies=[OBSERVE], response_class=Response, responses=METRICS_RESPONSES)
async def metrics(request: Request) -> Response:
    """The metrics in Prometheus' text format."""
    service = get_service(request)
    service.settle()
    return Response(service.metrics.render(), media_type=METRICS_TYPE)
