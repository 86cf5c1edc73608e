"""/v1: JSON for people and scripts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from . import json_api, schemas
from .bodies import json_response
from .errors import BadInput, NotFound
from .models import Labels, Model, Models
from .protocol import JSON_TYPE, cut
from .service import Call, Job, Service

router = APIRouter(prefix="/v1", tags=["v1"], responses=schemas.FAILURES)

TYPE = {"Content-Type": JSON_TYPE}


def service_of(request: Request) -> Service:
    """The service behind the app."""
    service: Service = request.app.state.service
    return service


def version_number(text: str | None, name: str) -> int | None:
    """A version from a path or query; raises NotFound when it is no number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFound(f"Request for unknown model: '{cut(name)}' version {cut(text)} is not found")
    return int(text)


def topk_job(call: Call, body: bytes) -> Job:
    """Decode a question of /v1/topk."""
    fields = json_api.parse(body, json_api.TOPK)
    model = call.find(*json_api.target(fields))
    manifest = model.head.manifest
    labels = wanted_labels(model, fields)
    query = json_api.topk_query(fields, manifest)
    return Job(model, query, lambda top: (json_api.encode_topk(manifest, top, labels), TYPE))


def wanted_labels(model: Model, fields: dict[str, Any]) -> Labels | None:
    """The model's labels where they are asked for; raises BadInput where it has none."""
    if not json_api.wants_labels(fields):
        return None
    if model.labels is None:
        raise BadInput(f"{model} was exported without labels: leave the field labels out")
    return model.labels


def score_job(call: Call, body: bytes) -> Job:
    """Decode a question of /v1/score."""
    fields = json_api.parse(body, json_api.SCORE)
    model = call.find(*json_api.target(fields))
    manifest = model.head.manifest
    query = json_api.score_query(fields, manifest)
    return Job(model, query, lambda scores: (json_api.encode_scores(manifest, scores), TYPE))


@router.post(
    "/topk",
    openapi_extra=schemas.body(schemas.TopKRequest),
    responses={200: {"model": schemas.TopKResponse}},
)
async def topk(request: Request) -> Response:
    """The k best classes of each context vector, with their log-probabilities."""
    return await service_of(request).answer("topk", request, topk_job)


@router.post(
    "/score",
    openapi_extra=schemas.body(schemas.ScoreRequest),
    responses={200: {"model": schemas.ScoreResponse}},
)
async def score(request: Request) -> Response:
    """The log-probabilities of given classes."""
    return await service_of(request).answer("score", request, score_job)


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
