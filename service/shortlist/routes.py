"""`/v1`, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from .app import Call, Service, answered, error_response
from .codec import DEFAULT_K, numbers
from .errors import BadInput
from .head import Head
from .json_api import Options, ScoreBody, TopKBody, TopKOptions, contexts_of, encode_scores, encode_topk, padded, parse
from .models import Entry
from .protocol import JSON_TYPE, Array

router = APIRouter()


def documented(body: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI of a body that the route reads by itself."""
    return {"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": body.model_json_schema()}}}}


@router.post("/v1/topk", openapi_extra=documented(TopKBody))
async def topk(request: Request) -> Response:
    """The k best classes of each context vector, with natural log-probabilities; -inf is null."""
    return await answered(request, "topk", answer_topk)


async def answer_topk(call: Call, body: bytes) -> Response:
    """Bytes -> head -> bytes."""
    options, raw = parse(body, TopKOptions, ("contexts",))
    head = call.model(options.model, options.version)
    metrics = call.service.metrics.of(head.manifest)
    with metrics.time("decode"):
        contexts = checked_rows(call.service, contexts_of(raw["contexts"], head))
        allow, ban = padded(options.allow), padded(options.ban)
    k = min(DEFAULT_K, head.manifest.max_k) if options.k is None else options.k
    with metrics.time("compute"):
        top = await call.service.compute(lambda: head.topk(contexts, k, allow=allow, ban=ban, exact=options.exact))
    metrics.answered(top)
    with metrics.time("encode"):
        return Response(encode_topk(head, top, labels=options.labels), media_type=JSON_TYPE)


@router.post("/v1/score", openapi_extra=documented(ScoreBody))
async def score(request: Request) -> Response:
    """Log-probabilities of given classes."""
    return await answered(request, "score", answer_score)


async def answer_score(call: Call, body: bytes) -> Response:
    """Bytes -> head -> bytes."""
    options, raw = parse(body, Options, ("contexts", "ids"))
    head = call.model(options.model, options.version)
    contexts = checked_rows(call.service, contexts_of(raw["contexts"], head))
    ids = numbers("ids", raw["ids"], "<i8") if raw["ids"] else numbers("ids", [[]] * len(contexts), "<f4")
    logprobs = await call.service.compute(lambda: head.logprobs(contexts, ids, exact=options.exact))
    normalizer = head.choose_plan(len(contexts), 1, options.exact)[1]
    return Response(encode_scores(head, logprobs, normalizer), media_type=JSON_TYPE)


def checked_rows(service: Service, contexts: Array) -> Array:
    """Refuse more rows than a request may have."""
    most = service.settings.max_rows
    if len(contexts) > most:
        raise BadInput(f"the request has {len(contexts)} rows but the server takes up to {most}: split it")
    return contexts


@router.get("/v1/models")
def models(request: Request) -> dict[str, Any]:
    """Every model with all its versions."""
    service: Service = request.app.state.service
    return {"models": [described(service, name) for name in service.models.entries]}


@router.get("/v1/models/{name}")
def model(request: Request, name: str) -> dict[str, Any]:
    """One model with all its versions."""
    return described(request.app.state.service, name)


def described(service: Service, name: str) -> dict[str, Any]:
    """A model as the API shows it."""
    versions = service.models.versions(name)
    return {
        "name": name,
        "device": service.device,
        "max_rows": service.settings.max_rows,
        "body_limit": service.settings.body_limit,
        "versions": [shown(version, entry) for version, entry in versions.items()],
    }


def shown(version: int, entry: Entry) -> dict[str, Any]:
    """One version: its state, and the manifest's facts once it is ready."""
    state: dict[str, Any] = {"version": version, "state": entry.state}
    if entry.head is None:
        return state | {"reason": entry.reason}
    return state | facts(entry.head)


def facts(head: Head) -> dict[str, Any]:
    """What a caller wants to know of a head."""
    manifest = head.manifest
    kept = {"method", "plan", "reference", "classes", "dim", "dtype", "max_k", "normalizer", "options", "quality",
            "dense_crossover"}  # fmt: skip
    return manifest.model_dump(include=kept) | {
        "device": head.device,
        "threads": head.threads,
        "labels": head.labels is not None,
        "exact": head.dense is not None,
    }


@router.get("/healthz")
async def healthz() -> dict[str, bool]:
    """The process lives."""
    return {"live": True}


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """200 when every bundle is warmed and passed its canary; else 503 with the reason."""
    reason = request.app.state.service.unready()
    if reason:
        return error_response(503, f"not ready: {reason}")
    return Response(b'{"ready":true}', media_type=JSON_TYPE)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text."""
    return Response(request.app.state.service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
