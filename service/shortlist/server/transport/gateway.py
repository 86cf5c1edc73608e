"""The gateway: a bare ASGI callable in front of the app that responds to the endpoints that compute by itself.

The responses are those of FastAPI's routes of the same paths, but a small request takes a fraction of the time.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.server.engine.endpoints import EndpointMatcher
from shortlist.server.engine.pipeline import respond
from shortlist.server.engine.service import Service

from .fast_path import FastPath


class Gateway:
    """An app in front of the app."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.matcher = EndpointMatcher(service.models)
        self.fast_path = FastPath(service, self.matcher)
        service.metrics.caches.watch("paths", lambda: len(self.matcher.targets))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond, or hand on to the app."""
        target = None
        if scope["type"] == "http" and scope["method"] == "POST":
            target = self.matcher.match(scope["path"])
        if target is None:
            await self.app(scope, receive, send)
        else:
            await respond(self.service, target, scope, receive, send)
