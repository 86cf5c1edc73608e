"""`/v2`: the core of the Open Inference Protocol. Bodies are in `codec`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from . import __version__
from .app import Answer, Call, Service, answered, error_response
from .codec import decode, encode, metadata
from .errors import BadInput
from .protocol import LENGTH_HEADER
from .routes import checked_rows

EXTENSIONS = ["binary_tensor_data", "parameters"]

router = APIRouter(prefix="/v2")


@router.get("")
@router.get("/", include_in_schema=False)
async def server() -> dict[str, Any]:
    """Server metadata."""
    return {"name": "shortlist", "version": __version__, "extensions": EXTENSIONS}


@router.get("/health/live")
async def live() -> dict[str, bool]:
    """The process lives."""
    return {"live": True}


@router.get("/health/ready", response_model=None)
async def ready(request: Request) -> Response | dict[str, bool]:
    """Every model is ready."""
    reason = request.app.state.service.unready()
    return error_response(503, f"not ready: {reason}") if reason else {"ready": True, "live": True}


@router.get("/models")
async def names(request: Request) -> dict[str, list[str]]:
    """Names of all models."""
    return {"models": list(request.app.state.service.models.entries)}


@router.get("/models/{name}")
@router.get("/models/{name}/versions/{version}")
async def model(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
    """Model metadata."""
    service: Service = request.app.state.service
    number = version_number(version)
    head = service.models.get(name, number)
    return metadata(head.manifest, list(service.models.versions(name)) if number is None else [number])


@router.get("/models/{name}/ready")
@router.get("/models/{name}/versions/{version}/ready")
async def model_ready(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
    """Whether the model is ready; 404 or 503 with the reason where it is not."""
    request.app.state.service.models.get(name, version_number(version))
    return {"name": name, "ready": True}


@router.post("/models/{name}/infer")
@router.post("/models/{name}/versions/{version}/infer")
async def infer(request: Request, name: str, version: str | None = None) -> Response:
    """Inputs `context` [-1, d] and optional `allow`, `ban` [-1, m]; outputs `ids`, `logprobs`, `scored`."""
    return await answered(request, "infer", inferring(name, version, request.headers.get(LENGTH_HEADER)))


def inferring(name: str, version: str | None, length: str | None) -> Answer:
    """What answers a body sent to this model."""

    async def answer(call: Call, body: bytes) -> Response:
        head = call.model(name, version_number(version))
        metrics = call.service.metrics.of(head.manifest)
        with metrics.time("decode"):
            asked = decode(head.manifest, body, length)
            contexts = checked_rows(call.service, asked.contexts)
        with metrics.time("compute"):
            top = await call.service.compute(
                lambda: head.topk(contexts, asked.k, allow=asked.allow, ban=asked.ban, exact=asked.exact)
            )
        metrics.answered(top)
        with metrics.time("encode"):
            content, headers = encode(asked, top, head.manifest)
            return Response(content, headers=headers)

    return answer


def version_number(text: str | None) -> int | None:
    """A version from a path; raises BadInput when it is no number."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadInput(f"version '{text}' is no whole number")
    return int(text)
