"""/v2: the core of the Open Inference Protocol, with binary tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from shortlist import __version__
from shortlist.server.codecs import v2_request
from shortlist.server.engine.request import Call, Endpoint, Job
from shortlist.server.engine.service import Service
from shortlist.server.messages.headers import LENGTH, RawHeaders
from shortlist.server.messages.responses import json_response
from shortlist.server.models import Model

from . import schemas
from .dependencies import service_of, version_number
from .v1 import Answer

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=schemas.FAILURES)

EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "logging",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
    "trace",
]
MODEL = "/models/{name}"
VERSION = MODEL + "/versions/{version}"


@router.get("")
@router.get("/", include_in_schema=False)
async def server(request: Request) -> Response:
    """The server's name, version and extensions."""
    extensions = EXTENSIONS if service_of(request).shared_memory is None else [*EXTENSIONS, "system_shared_memory"]
    return json_response({"name": "shortlist", "version": __version__, "extensions": extensions})


@router.get("/health/live")
async def live() -> Response:
    """200 while the process answers."""
    return json_response({"live": True})


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """200 once every model is ready; 503 with the reason before, and while draining."""
    service_of(request).check_ready()
    return json_response({"ready": True, "live": True})


@router.get("/models")
async def models(request: Request) -> Response:
    """The models' names."""
    return json_response({"models": list(service_of(request).models.by_name)})


@router.get("/models/stats")
async def all_statistics(request: Request) -> Response:
    """What was asked of every model so far."""
    service = service_of(request)
    service.settle()
    return json_response({"model_stats": [statistics_of(service, model) for model in service.models]})


@router.get(MODEL + "/stats")
@router.get(VERSION + "/stats")
async def model_statistics(request: Request, name: str, version: str | None = None) -> Response:
    """What was asked of one model so far: of all its versions, or of one."""
    service = service_of(request)
    service.settle()
    versions = service.models.versions(name).values() if version is None else [asked(request, name, version)]
    return json_response({"model_stats": [statistics_of(service, model) for model in versions]})


def statistics_of(service: Service, model: Model) -> dict[str, Any]:
    """One version's."""
    return service.served(model).ledger.statistics.described(model.name, model.version)


@router.get(MODEL)
@router.get(VERSION)
async def metadata(request: Request, name: str, version: str | None = None) -> Response:
    """A model's inputs and outputs."""
    found = asked(request, name, version)
    versions = service_of(request).models.versions(name) if version is None else [found.version]
    return json_response(v2_request.metadata(found.head.manifest, list(versions)))


@router.get(MODEL + "/ready")
@router.get(VERSION + "/ready")
async def model_ready(request: Request, name: str, version: str | None = None) -> Response:
    """200 once the model is ready; 503 with the reason before."""
    found = asked(request, name, version)
    return json_response({"name": found.head.manifest.name, "ready": True})


@router.post(
    MODEL + "/infer",
    openapi_extra=schemas.body(schemas.InferRequest, binary=True),
    responses={200: {"model": schemas.InferResponse}},
)
@router.post(
    VERSION + "/infer",
    openapi_extra=schemas.body(schemas.InferRequest, binary=True),
    responses={200: {"model": schemas.InferResponse}},
)
async def infer(request: Request, name: str, version: str | None = None) -> Response:
    """The k best classes, or the log-probabilities of given classes."""
    return Answer(infer_endpoint(name, version), service_of(request))


def asked(request: Request, name: str, version: str | None) -> Model:
    """The model of a path; raises NotFound."""
    return service_of(request).models.find(name, version_number(version, name))


def infer_endpoint(name: str, version: str | None) -> Endpoint:
    """The question of one path."""
    return Endpoint("infer", partial(infer_job, name=name, version=version), compresses=True)


def infer_job(call: Call, headers: RawHeaders, body: bytes, *, name: str, version: str | None) -> Job:
    """Decode an infer request."""
    served = call.find(name, version_number(version, name))
    codec = served.codec
    length = headers.get(LENGTH)
    request = codec.decode(body, None if length is None else length.decode("latin-1"))
    limits = request.timeout, request.priority
    return Job(served, request.query, partial(codec.encode, request), *limits, request.work, request.template)
