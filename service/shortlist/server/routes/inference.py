"""The routes of the endpoints that compute: made from their table, so that /docs describes them.

The gateway, in front of the app, responds to the same paths without these routes, which equal it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shortlist.server.engine.endpoints import ENDPOINTS, Endpoint, Target
from shortlist.server.engine.pipeline import respond
from shortlist.server.engine.service import Service

from . import schemas


@dataclass(frozen=True, slots=True)
class Documentation:
    """What /docs says of an endpoint."""

    tag: str
    description: str
    request: type[BaseModel]
    response: type[BaseModel]
    binary: bool = False


DOCUMENTATION = {
    "topk": Documentation(
        "v1",
        "The k best classes of each context vector, with their log-probabilities.",
        schemas.TopKRequest,
        schemas.TopKResponse,
    ),
    "score": Documentation(
        "v1", "The log-probabilities of given classes.", schemas.ScoreRequest, schemas.ScoreResponse
    ),
    "beam": Documentation(
        "v1",
        "One step of a beam search: the n best continuations of each group of beams.",
        schemas.BeamRequest,
        schemas.BeamResponse,
    ),
    "infer": Documentation(
        "Open Inference Protocol",
        "The k best classes, the log-probabilities of given classes, or one step of a beam search.",
        schemas.InferRequest,
        schemas.InferResponse,
        binary=True,
    ),
}


class PipelineResponse(Response):
    """The response of an endpoint, which reads its request and writes to the connection by itself."""

    def __init__(self, service: Service, target: Target) -> None:
        super().__init__()
        self.service, self.target = service, target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(self.service, self.target, scope, receive, send)


def make_route(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """A route that hands its request to `endpoint`."""

    async def route(request: Request) -> Response:
        return PipelineResponse(request.app.state.service, Target(endpoint, request.path_params))

    return route


def make_router() -> APIRouter:
    """A route for every endpoint of the table."""
    router = APIRouter(responses=schemas.FAILURE_RESPONSES)
    for path, endpoint in ENDPOINTS.items():
        documentation = DOCUMENTATION[endpoint.name]
        router.add_api_route(
            path,
            make_route(endpoint),
            methods=["POST"],
            name=endpoint.name,
            tags=[documentation.tag],
            description=documentation.description,
            responses=schemas.describe_response(documentation.response, binary=documentation.binary),
            openapi_extra=schemas.describe_body(documentation.request, binary=documentation.binary),
        )
    return router
