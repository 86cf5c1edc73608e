"""/v2: the Open Inference Protocol's health, metadata and statistics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from shortlist import __version__
from shortlist.server.codecs import v2_request
from shortlist.server.engine.service import Service
from shortlist.server.lifecycle.registry import parse_version
from shortlist.server.messages.responses import make_json_response
from shortlist.server.models import Model

from . import schemas
from .dependencies import OBSERVE, READ, PathVersion, check_ready, get_service

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=schemas.FAILURE_RESPONSES)

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
MODEL_PATH = "/models/{name}"
VERSION_PATH = MODEL_PATH + "/versions/{version}"


@router.get("", dependencies=[READ], responses={200: {"model": schemas.ServerInfo}})
@router.get("/", dependencies=[READ], include_in_schema=False)
async def server(request: Request) -> Response:
    """The server's name, version and extensions."""
    extensions = EXTENSIONS if get_service(request).shared_memory is None else [*EXTENSIONS, "system_shared_memory"]
    return make_json_response({"name": "shortlist", "version": __version__, "extensions": extensions})


@router.get("/health/live", responses={200: {"model": schemas.Health}})
async def live() -> Response:
    """200 while the process answers."""
    return make_json_response({"live": True})


@router.get("/health/ready", responses={200: {"model": schemas.Health}})
async def ready(request: Request) -> Response:
    """200 once every model is ready; 503 with the reason before, and while draining."""
    check_ready(request)
    return make_json_response({"ready": True, "live": True})


@router.get("/models", dependencies=[READ], responses={200: {"model": schemas.ModelNames}})
async def models(request: Request) -> Response:
    """List the names of all models."""
    return make_json_response({"models": list(get_service(request).models.by_name)})


@router.get("/models/stats", dependencies=[OBSERVE], responses={200: {"model": schemas.Statistics}})
async def all_statistics(request: Request) -> Response:
    """The statistics of every model that got a request."""
    service = get_service(request)
    service.settle()
    return make_json_response({"model_stats": [describe_statistics(service, model) for model in service.models]})


@router.get(MODEL_PATH + "/stats", dependencies=[OBSERVE], responses={200: {"model": schemas.Statistics}})
@router.get(VERSION_PATH + "/stats", dependencies=[OBSERVE], responses={200: {"model": schemas.Statistics}})
async def model_statistics(request: Request, name: str, version: PathVersion) -> Response:
    """The statistics of one model: of all its versions, or of one."""
    service = get_service(request)
    service.settle()
    versions = (
        service.models.find_table(name).by_number.values() if version is None else [find_model(request, name, version)]
    )
    return make_json_response({"model_stats": [describe_statistics(service, model) for model in versions]})


def describe_statistics(service: Service, model: Model) -> dict[str, Any]:
    """The statistics of one version of a model."""
    return service.get_served_model(model).recorder.statistics.describe(model.name, model.version)


@router.get(MODEL_PATH, dependencies=[READ], responses={200: {"model": schemas.ModelMetadata}})
@router.get(VERSION_PATH, dependencies=[READ], responses={200: {"model": schemas.ModelMetadata}})
async def metadata(request: Request, name: str, version: PathVersion) -> Response:
    """A model's inputs and outputs."""
    model = find_model(request, name, version)
    versions = get_service(request).models.find_table(name).by_number if version is None else [model.version]
    return make_json_response(v2_request.describe_model(model.head.manifest, list(versions), model.text_outputs))


@router.get(MODEL_PATH + "/ready", dependencies=[READ], responses={200: {"model": schemas.ModelReady}})
@router.get(VERSION_PATH + "/ready", dependencies=[READ], responses={200: {"model": schemas.ModelReady}})
async def model_ready(request: Request, name: str, version: PathVersion) -> Response:
    """200 once the model is ready; 503 with the reason before."""
    model = find_model(request, name, version)
    return make_json_response({"name": model.head.manifest.name, "ready": True})


def find_model(request: Request, name: str, version: str | None) -> Model:
    """The model of a path; raises NotFound."""
    return get_service(request).models.find(name, parse_version(version, name))
