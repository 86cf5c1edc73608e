"""Requests outside of the table of endpoints: handed on to an app, counted by status, answered where the drain ends."""

from __future__ import annotations

import asyncio
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.server.access.clients import read_address
from shortlist.server.engine.access_log import log_route
from shortlist.server.engine.service import Service
from shortlist.server.messages.request_ids import read_request_ids
from shortlist.server.messages.responses import make_drain_error, make_error_response, to_starlette
from shortlist.server.metrics.series import UNKNOWN_MODEL

PROBES = re.compile(r"/healthz|/readyz|/metrics|/v2/health/(live|ready)|/v2/models/.+/ready")  # which are not counted
GROUPS = {
    "recall": re.compile("/v1/models/[^/]+/recall"),
    "items": re.compile("/v1/models/[^/]+/items"),
    "lists": re.compile("/v1/(lists|models/[^/]+/sets)(/.*)?"),
    "repository": re.compile("/v2/repository/.*"),
}  # by the name that is the label `endpoint`
OTHER_GROUP = "other"


async def respond_by_route(
    service: Service, app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, is_refusal: bool = False
) -> None:
    """Let an app respond; count that, and log it where that is asked for. What the drain cuts off gets 503.

    is_refusal: it refuses a host or a page, which is counted as that.
    """
    start, status = time.perf_counter(), 0

    async def send_and_note(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, receive, send_and_note)
    except asyncio.CancelledError:
        if status:
            raise
        ids = read_request_ids(dict(scope["headers"]))
        await to_starlette(make_error_response(make_drain_error(), ids))(scope, receive, send_and_note)
    finally:
        if status and not is_refusal:
            count_route(service, scope["path"], status)
        if service.settings.access_log:
            client = service.identify_client(dict(scope["headers"]), read_address(scope))
            log_route(client, scope, status, time.perf_counter() - start)


def count_route(service: Service, path: str, status: int) -> None:
    """Count a request that is over, but for those of probes."""
    if PROBES.fullmatch(path) is None:
        service.metrics.requests.labels(*UNKNOWN_MODEL, name_group(path), str(status)).inc()


def name_group(path: str) -> str:
    """The routes that a path is counted among: few, as clients make paths up."""
    return next((name for name, pattern in GROUPS.items() if pattern.fullmatch(path)), OTHER_GROUP)
