"""The app of one process, where requests that are about the whole server go to all of its processes.

Changes (models, lists, regions of shared memory, settings of log and traces) are done by every process. What is read of
a server (metrics, statistics, readiness, served precision) is read of every process and put together.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response as StarletteResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.errors import NotReady
from shortlist.server.access.clients import read_address
from shortlist.server.access.keys import Role
from shortlist.server.engine.service import Service
from shortlist.server.messages.headers import RawHeaders
from shortlist.server.messages.request_ids import read_request_ids
from shortlist.server.messages.responses import make_error_response
from shortlist.server.scheduling.hold import Hold

from .channel import ChannelClosed
from .exchange import Request, Response, call_app, replace_body
from .link import Link
from .views.answers import merge_models, merge_readiness, merge_statistics

Merge = Callable[[Sequence[Response]], Response]


class Change(NamedTuple):
    """Requests that change something. role: who may."""

    methods: tuple[str, ...]
    path: re.Pattern[str]
    role: Role


class View(NamedTuple):
    """Requests that read something of the whole server. merge: the answer, of those of all processes."""

    path: re.Pattern[str]
    merge: Merge


CHANGES = (
    Change(("POST",), re.compile("/v2/repository/models/[^/]+/(un)?load"), Role.ADMINISTER),
    Change(("POST",), re.compile("/v2/logging|/v2(/models/[^/]+)?/trace/setting"), Role.ADMINISTER),
    Change(("POST",), re.compile("/v2/systemsharedmemory/unregister"), Role.ADMINISTER),
    Change(("POST",), re.compile("/v2/systemsharedmemory/region/[^/]+/(un)?register"), Role.ASK),
    Change(("PUT", "DELETE"), re.compile("/v1/lists/[^/]+"), Role.ASK),
)
VIEWS = (
    View(re.compile("/readyz|/v2/health/ready"), merge_readiness),
    View(re.compile("/v2/models(/[^/]+(/versions/[^/]+)?)?/stats"), merge_statistics),
    View(re.compile("/v1/models(/[^/]+)?"), merge_models),
)
METRICS_PATH = "/metrics"
READING_METHODS = ("GET", "HEAD")


class Everywhere:
    """An app in front of the app. link: to the supervisor."""

    def __init__(self, app: ASGIApp, service: Service, link: Link) -> None:
        self.app, self.service, self.link = app, service, link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let all processes respond to what concerns all, and the app to everything else."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif (role := find_change(scope)) is not None:
            await self.send_on(await self.change(scope, receive, role), scope, receive, send)
        elif scope["method"] in READING_METHODS and scope["path"] == METRICS_PATH:
            await self.send_on(await self.read_metrics(Request.from_scope(scope, b"")), scope, receive, send)
        elif (merge := find_view(scope)) is not None:
            await self.send_on(await self.view(Request.from_scope(scope, b""), merge), scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def send_on(self, response: Response | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a response, unless the client has left."""
        if response is not None:
            answer = StarletteResponse(response.body, response.status)
            answer.raw_headers = response.headers
            await answer(scope, receive, send)

    async def change(self, scope: Scope, receive: Receive, role: Role) -> Response | None:
        """Change something in all processes; None where the client left before its body had come."""
        headers = dict(scope["headers"])
        client = self.service.identify_client(headers, read_address(scope))
        with Hold(self.service.admission, client) as hold:
            try:
                self.service.access.check_role(headers, role)
                body = await self.service.bodies.read(receive, headers, time.perf_counter(), hold)
                return await self.link.change(Request.from_scope(scope, body))
            except ClientDisconnect:
                return None
            except ChannelClosed:
                return make_refusal(NotReady("the server stops, and nothing of it is changed any more"), headers)
            except Exception as error:
                return make_refusal(error, headers)

    async def view(self, request: Request, merge: Merge) -> Response:
        """Read something of all processes, where this one lets it be read."""
        response = await call_app(self.app, request)
        if not response.is_success or request.method == "HEAD":
            return response
        with contextlib.suppress(ChannelClosed):  # the supervisor has ended: this process alone is left to be read
            response = merge([response, *await self.link.ask_others(request)])
        return response

    async def read_metrics(self, request: Request) -> Response:
        """The metrics of all processes, where this one lets its own be read."""
        response = await call_app(self.app, request)
        if not response.is_success or request.method == "HEAD":
            return response
        with contextlib.suppress(ChannelClosed):
            response = replace_body(response, await self.link.render_metrics())
        return response


def make_refusal(error: Exception, headers: RawHeaders) -> Response:
    """The response to a change that was not done."""
    refusal = make_error_response(error, read_request_ids(headers))
    return Response(refusal.status, refusal.headers, refusal.content)


def find_change(scope: Scope) -> Role | None:
    """Who may do what a request wants, where that is a change of the whole server."""
    roles = (each.role for each in CHANGES if scope["method"] in each.methods and each.path.fullmatch(scope["path"]))
    return next(roles, None)


def find_view(scope: Scope) -> Merge | None:
    """How to put the answers of all processes together, where a request reads something of the whole server."""
    if scope["method"] not in READING_METHODS:
        return None
    return next((view.merge for view in VIEWS if view.path.fullmatch(scope["path"])), None)
