"""/v2/logging, /v2/trace and shared memory: what operators and clients on the same machine set while it runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from shortlist.errors import BadInput, Unsupported
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.engine.log_settings import LOG_FIELDS
from shortlist.server.engine.trace_settings import TRACE_FIELDS
from shortlist.server.messages.responses import make_json_response

from . import schemas
from .dependencies import ADMINISTER, ASK, OBSERVE, PathName, PathRegion, get_service
from .optional_body import describe_optional_body, read_optional_fields
from .v2 import MODEL_PATH

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=schemas.FAILURE_RESPONSES)

TRACE_PATH = "/trace/setting"
SHARED_MEMORY_PATH = "/systemsharedmemory"
REGION_PATH = SHARED_MEMORY_PATH + "/region/{region}"
CUDA_MEMORY_PATH = "/cudasharedmemory/{path:path}"
LOG_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"model": schemas.LogState}}
TRACE_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"model": schemas.TraceState}}
TRACE_BODY = describe_optional_body(**TRACE_FIELDS)
REGION_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"model": list[schemas.SharedRegion]}}
REGISTER_FIELDS: dict[str, dict[str, Any]] = {
    "key": {"type": "string"},
    "offset": {"type": "integer", "minimum": 0},
    "byte_size": {"type": "integer", "minimum": 1},
}


@router.get("/logging", dependencies=[OBSERVE], responses=LOG_RESPONSES)
async def log_settings(request: Request) -> Response:
    """The log settings that are in force."""
    return make_json_response(get_service(request).log_settings.describe())


@router.post(
    "/logging",
    dependencies=[ADMINISTER],
    responses=LOG_RESPONSES,
    openapi_extra=describe_optional_body(**LOG_FIELDS),
)
async def change_log_settings(request: Request) -> Response:
    """Log more or less, from now on; answers every setting."""
    settings = get_service(request).log_settings
    settings.update(await read_optional_fields(request))
    return make_json_response(settings.describe())


@router.get(TRACE_PATH, dependencies=[OBSERVE], responses=TRACE_RESPONSES)
@router.get(MODEL_PATH + TRACE_PATH, dependencies=[OBSERVE], responses=TRACE_RESPONSES)
async def trace_settings(request: Request, name: PathName) -> Response:
    """The trace settings of the server, or of a model."""
    check_model(request, name)
    return make_json_response(get_service(request).trace_settings.describe(name))


@router.post(TRACE_PATH, dependencies=[ADMINISTER], responses=TRACE_RESPONSES, openapi_extra=TRACE_BODY)
@router.post(MODEL_PATH + TRACE_PATH, dependencies=[ADMINISTER], responses=TRACE_RESPONSES, openapi_extra=TRACE_BODY)
async def change_trace_settings(request: Request, name: PathName) -> Response:
    """Change trace settings of the server, or of a model; null clears one; answers every setting."""
    check_model(request, name)
    settings = get_service(request).trace_settings
    settings.update(await read_optional_fields(request), name)
    return make_json_response(settings.describe(name))


def check_model(request: Request, name: str | None) -> None:
    """Raise NotFound where there is no model of that name."""
    if name is not None:
        get_service(request).models.find_table(name)


def get_regions(request: Request) -> SharedMemory:
    """The server's regions; raises BadInput where shared memory is off."""
    regions: SharedMemory | None = get_service(request).shared_memory
    if regions is None:
        raise BadInput("system shared memory is off: start the server with --shared-memory")
    return regions


@router.get(SHARED_MEMORY_PATH + "/status", dependencies=[OBSERVE], responses=REGION_RESPONSES)
@router.get(REGION_PATH + "/status", dependencies=[ASK], responses=REGION_RESPONSES)
async def status(request: Request, region: PathRegion) -> Response:
    """Every registered region, or one."""
    return make_json_response(get_regions(request).status(region))


@router.post(
    REGION_PATH + "/register",
    dependencies=[ASK],
    response_class=Response,
    openapi_extra=describe_optional_body(**REGISTER_FIELDS),
)
async def register(request: Request, region: str) -> Response:
    """Make a part of a shared memory object known by a name, for inputs and outputs."""
    regions = get_regions(request)
    fields = await read_optional_fields(request)
    regions.register(region, fields.get("key", ""), fields.get("offset", 0), fields.get("byte_size", 0))
    return Response()


@router.post(SHARED_MEMORY_PATH + "/unregister", dependencies=[ADMINISTER], response_class=Response)
@router.post(REGION_PATH + "/unregister", dependencies=[ASK], response_class=Response)
async def unregister(request: Request, region: PathRegion) -> Response:
    """Forget every region, or one; the memory itself stays the client's."""
    get_regions(request).unregister(region)
    return Response()


@router.get(CUDA_MEMORY_PATH, dependencies=[ASK], include_in_schema=False)
@router.post(CUDA_MEMORY_PATH, dependencies=[ASK], include_in_schema=False)
async def refuse_cuda_memory(path: str) -> Response:
    """Refuse: CUDA shared memory is not served."""
    raise Unsupported("CUDA shared memory is not served: send tensors as binary data or in system shared memory")
