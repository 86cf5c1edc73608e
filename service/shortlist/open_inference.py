"""/v2: the core of the Open Inference Protocol, with binary tensors."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from . import __version__, codec, schemas
from .bodies import json_response
from .models import Model
from .protocol import LENGTH_HEADER
from .routes import service_of, version_number
from .service import Call, Job

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=schemas.FAILURES)

EXTENSIONS = ["binary_tensor_data", "parameters"]
MODEL = "/models/{name}"
VERSION = MODEL + "/versions/{version}"


@router.get("")
@router.get("/", include_in_schema=False)
async def server() -> Response:
    """The server's name, version and extensions."""
    return json_response({"name": "shortlist", "version": __version__, "extensions": EXTENSIONS})


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


@router.get(MODEL)
@router.get(VERSION)
async def metadata(request: Request, name: str, version: str | None = None) -> Response:
    """A model's inputs and outputs."""
    found = asked(request, name, version)
    versions = service_of(request).models.versions(name) if version is None else [found.version]
    return json_response(codec.metadata(found.head.manifest, list(versions)))


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
    decode = partial(infer_job, name=name, version=version, header=request.headers.get(LENGTH_HEADER))
    return await service_of(request).answer("infer", request, decode)


def asked(request: Request, name: str, version: str | None) -> Model:
    """The model of a path; raises NotFound."""
    return service_of(request).models.find(name, version_number(version, name))


def infer_job(call: Call, body: bytes, *, name: str, version: str | None, header: str | None) -> Job:
    """Decode an infer request."""
    model = call.find(name, version_number(version, name))
    manifest = model.head.manifest
    request = codec.decode(body, header, manifest)
    return Job(model, request.query, lambda result: codec.encode(manifest, request, result))
