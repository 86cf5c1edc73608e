"""/v1: JSON for people and scripts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shortlist.core.results import Labels
from shortlist.errors import BadInput
from shortlist.server.codecs import v1_json
from shortlist.server.engine.request import Call, Endpoint, Job
from shortlist.server.engine.service import Service
from shortlist.server.messages.headers import CONTENT_TYPE, RawHeaders
from shortlist.server.messages.responses import json_response
from shortlist.server.models import Model, Models
from shortlist.wire.open_inference import JSON_TYPE

from . import schemas
from .dependencies import service_of, version_number

router = APIRouter(prefix="/v1", tags=["v1"], responses=schemas.FAILURES)

TYPE = [(CONTENT_TYPE, JSON_TYPE.encode())]


def topk_job(call: Call, headers: RawHeaders, body: bytes) -> Job:
    """Decode a question of /v1/topk."""
    fields = v1_json.parse(body, v1_json.TOPK)
    served = call.find(*v1_json.target(fields))
    manifest = served.model.head.manifest
    labels = wanted_labels(served.model, fields)
    query = v1_json.topk_query(fields, manifest)
    return Job(served, query, lambda top: (v1_json.encode_topk(manifest, top, labels), TYPE), *v1_json.limits(fields))


def wanted_labels(model: Model, fields: dict[str, Any]) -> Labels | None:
    """The model's labels where they are asked for; raises BadInput where it has none."""
    if not v1_json.wants_labels(fields):
        return None
    if model.labels is None:
        raise BadInput(f"{model} was exported without labels: leave the field labels out")
    return model.labels


def score_job(call: Call, headers: RawHeaders, body: bytes) -> Job:
    """Decode a question of /v1/score."""
    fields = v1_json.parse(body, v1_json.SCORE)
    served = call.find(*v1_json.target(fields))
    manifest = served.model.head.manifest
    query = v1_json.score_query(fields, manifest)
    limits = v1_json.limits(fields)
    return Job(served, query, lambda scores: (v1_json.encode_scores(manifest, scores), TYPE), *limits)


TOPK, SCORE = Endpoint("topk", topk_job), Endpoint("score", score_job)


class Answer(Response):
    """What an endpoint answers, for the router: the gateway in front of it does the same without it."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        """Nothing is read yet."""
        super().__init__()
        self.endpoint, self.service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, compute, send."""
        await self.service.answer(self.endpoint, scope, receive, send)


@router.post(
    "/topk",
    openapi_extra=schemas.body(schemas.TopKRequest),
    responses={200: {"model": schemas.TopKResponse}},
)
async def topk(request: Request) -> Response:
    """The k best classes of each context vector, with their log-probabilities."""
    return Answer(TOPK, service_of(request))


@router.post(
    "/score",
    openapi_extra=schemas.body(schemas.ScoreRequest),
    responses={200: {"model": schemas.ScoreResponse}},
)
async def score(request: Request) -> Response:
    """The log-probabilities of given classes."""
    return Answer(SCORE, service_of(request))


@router.get("/models", responses={200: {"model": schemas.ModelList}})
async def models(request: Request) -> Response:
    """Every model of the repository."""
    known = service_of(request).models
    return json_response({"models": [described(known, name, None) for name in known.by_name]})


@router.get("/models/{name}", responses={200: {"model": schemas.ModelVersions}})
async def model(request: Request, name: str, version: str | None = None) -> Response:
    """One model: its latest version, or the one asked for."""
    return json_response(described(service_of(request).models, name, version))


def described(known: Models, name: str, version: str | None) -> dict[str, Any]:
    """What is said of one version of a model."""
    versions = known.versions(name)
    found = known.find(name, version_number(version, name))
    return found.info() | {"versions": [each.info() for each in versions.values()]}
