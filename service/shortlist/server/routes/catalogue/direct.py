"""PUT /v1/models/{name}/items without the routes of FastAPI, which take most of the time of a small batch."""

from __future__ import annotations

import re

from starlette.types import Receive, Scope, Send

from shortlist.server.access.clients import read_address
from shortlist.server.access.keys import Role
from shortlist.server.engine.service import Service
from shortlist.server.messages.request_ids import read_request_ids
from shortlist.server.messages.responses import make_error_response, to_starlette

from .items import change_items

ITEMS_PATH = re.compile(r"/v1/models/([^/]+)/items")


class DirectChanges:
    """An ASGI app that changes items; its responses are those of the route of the same path."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def matches(self, scope: Scope) -> bool:
        """Whether a request is to change items."""
        return scope["method"] == "PUT" and ITEMS_PATH.fullmatch(scope["path"]) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request that `matches`."""
        match, headers = ITEMS_PATH.fullmatch(scope["path"]), dict(scope["headers"])
        assert match is not None, "the gateway hands on what matches"
        try:
            self.service.access.check_role(headers, Role.ADMINISTER)
            response = await change_items(self.service, match[1], headers, read_address(scope), receive)
        except Exception as error:
            response = to_starlette(make_error_response(error, read_request_ids(headers)))
        await response(scope, receive, send)
