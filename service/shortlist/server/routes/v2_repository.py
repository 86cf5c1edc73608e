"""/v2/repository and /v2/models/../config: what is in the repository, loading and unloading, how models are served."""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shortlist.bundle.reader import LABELS_FILE
from shortlist.core.checks import cut, parse_object
from shortlist.core.units import MICROSECONDS_PER_SECOND
from shortlist.errors import BadInput
from shortlist.server.codecs import v2_request
from shortlist.server.engine.service import Service
from shortlist.server.lifecycle.declaration import Declaration
from shortlist.server.messages.json_fields import read_flag
from shortlist.server.messages.responses import make_json_response
from shortlist.server.models import WARM_BATCH_ROWS, WARM_CALLS, Model
from shortlist.server.settings import Settings
from shortlist.wire.open_inference import CONTEXT, LOGPROBS

from . import schemas
from .dependencies import ADMINISTER, MODEL_CONTROL, OBSERVE, READ, PathVersion, get_service
from .optional_body import describe_optional_body, read_optional_fields
from .v2 import MODEL_PATH, VERSION_PATH, find_model

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=schemas.FAILURE_RESPONSES)

STATE_NAMES = {"loading": "LOADING", "ready": "READY"}  # all others are called so:
UNAVAILABLE = "UNAVAILABLE"
REPOSITORY_MODEL_PATH = "/repository/models/{name}"
TYPE_NAMES = {"BYTES": "TYPE_STRING"}  # all others are called TYPE_ and their name
PARAMETERS_SCHEMA = {"type": ["object", "null"]}


@router.post(
    "/repository/index",
    dependencies=[OBSERVE],
    responses={200: {"model": list[schemas.IndexEntry]}},
    openapi_extra=describe_optional_body(ready={"type": "boolean"}),
)
async def index(request: Request) -> Response:
    """Every version of every model with its state, or with `ready` only those that answer."""
    only_ready = read_flag(await read_optional_fields(request), "ready")
    models = [model for model in get_service(request).models if model.state == "ready" or not only_ready]
    return make_json_response([describe_state(model) for model in models])


def describe_state(model: Model) -> dict[str, str]:
    """The entry of one version in the index."""
    return {
        "name": model.name,
        "version": str(model.version),
        "state": STATE_NAMES.get(model.state, UNAVAILABLE),
        "reason": model.reason,
    }


@router.post(
    REPOSITORY_MODEL_PATH + "/load",
    dependencies=[ADMINISTER, MODEL_CONTROL],
    response_class=Response,
    openapi_extra=describe_optional_body(parameters=PARAMETERS_SCHEMA),
)
async def load(request: Request, name: str) -> Response:
    """Load every version of a model that is in the repository now; heads stay in use meanwhile."""
    check_overrides(await read_parameters(request))
    with contextlib.suppress(ClientDisconnect):  # nobody reads the response
        await get_service(request).changes.load(name, request.receive)
    return Response()


@router.post(
    REPOSITORY_MODEL_PATH + "/unload",
    dependencies=[ADMINISTER, MODEL_CONTROL],
    response_class=Response,
    openapi_extra=describe_optional_body(parameters=PARAMETERS_SCHEMA),
)
async def unload(request: Request, name: str) -> Response:
    """Serve no version of a model, and free its memory, until it is loaded again."""
    read_flag(await read_parameters(request), "unload_dependents")  # no model depends on another
    with contextlib.suppress(ClientDisconnect):
        await get_service(request).unload_model(name, request.receive)
    return Response()


async def read_parameters(request: Request) -> dict[str, Any]:
    """The parameters of a body that may be empty; raises BadInput."""
    return parse_object(await read_optional_fields(request), "parameters", "the request")


def check_overrides(parameters: dict[str, Any]) -> None:
    """Refuse another config or other files than the repository's: a bundle is served as it was verified."""
    override = next((name for name in parameters if name == "config" or name.startswith("file:")), None)
    if override is not None:
        raise BadInput(f"parameter '{cut(override)}' is not served: put the bundle into the repository and load it")


@router.get(MODEL_PATH + "/config", dependencies=[READ], responses={200: {"model": schemas.ModelConfig}})
@router.get(VERSION_PATH + "/config", dependencies=[READ], responses={200: {"model": schemas.ModelConfig}})
async def config(request: Request, name: str, version: PathVersion) -> Response:
    """How a model is served, in the words of Triton's ModelConfig."""
    return make_json_response(describe_config(get_service(request), find_model(request, name, version)))


def describe_config(service: Service, model: Model) -> dict[str, Any]:
    """One version's configuration; raises NotReady. Its tensors are those of the metadata."""
    manifest = model.head.manifest
    table = service.models.find_table(model.name)
    versions = list(table.by_number)
    metadata = v2_request.describe_model(manifest, versions, model.text_outputs)
    return {
        "name": model.name,
        "platform": metadata["platform"],
        "backend": "onnxruntime",
        "version_policy": describe_policy(table.declaration, service.settings.latest_versions),
        "max_batch_size": service.settings.max_rows,
        "input": [describe_tensor(entry) | {"optional": entry["name"] != CONTEXT} for entry in metadata["inputs"]],
        "output": [describe_tensor(entry) | describe_label_file(entry, model) for entry in metadata["outputs"]],
        "dynamic_batching": describe_batching(service.settings),
        "instance_group": [{"name": model.name, "kind": choose_instance_kind(service.device), "count": 1}],
        "parameters": {
            key: {"string_value": str(getattr(manifest, key))} for key in ("method", "plan", "normalizer", "max_k")
        },
        "model_warmup": [
            {"name": f"{rows} rows", "batch_size": rows, "count": WARM_CALLS, "inputs": {}} for rows in WARM_BATCH_ROWS
        ],
        "response_cache": {"enable": False},
        "model_transaction_policy": {"decoupled": False},
    }


def describe_policy(declaration: Declaration, latest: int | None) -> dict[str, Any]:
    """Which versions are served, aliases apart. latest: where the model does not say."""
    if declaration.pinned is not None:
        return {"specific": {"versions": list(declaration.pinned)}}
    count = declaration.latest or latest
    return {"latest": {"num_versions": count}} if count else {"all": {}}


def describe_tensor(entry: dict[str, Any]) -> dict[str, Any]:
    """A tensor of the metadata in the words of a config, where `dims` leave out the batch."""
    datatype = entry["datatype"]
    return {
        "name": entry["name"],
        "data_type": TYPE_NAMES.get(datatype, f"TYPE_{datatype}"),
        "dims": entry["shape"][1:],
    }


def describe_label_file(entry: dict[str, Any], model: Model) -> dict[str, str]:
    """Where the labels of an output's classes stand, if the model has any."""
    has_labels = entry["name"] == LOGPROBS and model.labels is not None
    return {"label_filename": LABELS_FILE if has_labels else ""}


def describe_batching(settings: Settings) -> dict[str, Any]:
    """How requests are gathered; times in microseconds. The queue is bounded in rows, over all models."""
    return {
        "preferred_batch_size": [settings.batch_rows],
        "max_queue_delay_microseconds": round(settings.batch_delay_us),
        "default_queue_policy": {
            "max_queue_size": settings.queue_rows,
            "default_timeout_microseconds": round(settings.request_timeout * MICROSECONDS_PER_SECOND),
            "allow_timeout_override": True,
        },
    }


def choose_instance_kind(device: str) -> str:
    """The kind of a model's instance, in Triton's words: `KIND_CPU`, or `KIND_GPU` on a CUDA device."""
    return "KIND_CPU" if device == "cpu" else "KIND_GPU"
