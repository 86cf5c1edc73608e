"""What routes share: the service behind the app, and who may use them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from shortlist.errors import Forbidden, NotReady
from shortlist.server.access.clients import read_address
from shortlist.server.access.keys import Role
from shortlist.server.engine.service import Service
from shortlist.server.messages.headers import RawHeaders
from shortlist.server.scheduling.hold import Hold

PERMITTED = "shortlist.permitted"  # in a scope that this server has made, which no client can


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def read_headers(request: Request) -> RawHeaders:
    """The request's headers by name, in lower case."""
    return dict(request.scope["headers"])


def hold_request(request: Request) -> Hold:
    """What holds the room that a request takes, in the name of its client."""
    service = get_service(request)
    client = service.identify_client(read_headers(request), read_address(request.scope))
    return Hold(service.admission, client)


class PathPart:
    """A dependency of a function that serves several paths: the part of that name, None in a path without it.

    A mere argument that may lack would be a field of the query in those paths.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, request: Request) -> str | None:
        return request.path_params.get(self.name)


class Requirement:
    """A dependency of a route: the request's API key must have one of `roles`, where the server wants keys.

    A request whose scope says `PERMITTED` was let through before, by another process of this server.
    """

    def __init__(self, *roles: Role) -> None:
        self.roles = roles

    async def __call__(self, request: Request) -> None:
        """Raise Unauthorized or Forbidden."""
        if request.scope.get(PERMITTED):
            return
        get_service(request).access.check_role(read_headers(request), *self.roles)


async def require_model_control(request: Request) -> None:
    """Raise Forbidden where models are not loaded and unloaded by request."""
    if get_service(request).settings.model_control != "explicit":
        raise Forbidden("models are not loaded or unloaded by request: start the server with --model-control explicit")


ASK = Depends(Requirement(Role.ASK))
READ = Depends(Requirement(Role.ASK, Role.OBSERVE))  # what a client wants to know before it asks
OBSERVE = Depends(Requirement(Role.OBSERVE))
ADMINISTER = Depends(Requirement(Role.ADMINISTER))
MODEL_CONTROL = Depends(require_model_control)
PathName = Annotated[str | None, Depends(PathPart("name"))]
PathVersion = Annotated[str | None, Depends(PathPart("version"))]
PathRegion = Annotated[str | None, Depends(PathPart("region"))]


def check_ready(request: Request) -> None:
    """Raise NotReady while the server is not ready; with the reason for those who may read about its models."""
    service = get_service(request)
    try:
        service.check_ready()
    except NotReady:
        if service.access.find_role_refusal(read_headers(request), Role.ASK, Role.OBSERVE) is None:
            raise
        raise NotReady("the server is not ready: ask with an API key for the reason") from None
