"""/v1/models: the models of the repository, for people and scripts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from shortlist.bundle.manifest import Manifest
from shortlist.server.engine.service import Service
from shortlist.server.lifecycle.registry import parse_version
from shortlist.server.lifecycle.version_table import VersionTable
from shortlist.server.messages.responses import make_json_response
from shortlist.server.models import Model

from . import schemas
from .dependencies import READ, get_service

router = APIRouter(prefix="/v1", tags=["v1"], dependencies=[READ], responses=schemas.FAILURE_RESPONSES)

MANIFEST_FIELDS = schemas.ModelInfo.model_fields.keys() & Manifest.model_fields.keys()


@router.get("/models", responses={200: {"model": schemas.ModelList}})
async def models(request: Request) -> Response:
    """List every version of every model of the repository."""
    service = get_service(request)
    return make_json_response({"models": [describe_model(service, name, None) for name in service.models.by_name]})


@router.get("/models/{name}", responses={200: {"model": schemas.ModelVersions}})
async def model(request: Request, name: str, version: str | None = None) -> Response:
    """One model: the version asked for, or `stable` where it is declared, else the latest that is ready."""
    return make_json_response(describe_model(get_service(request), name, version))


def describe_model(service: Service, name: str, version: str | None) -> dict[str, Any]:
    """`ModelVersions` of one version of a model; raises NotFound."""
    table = service.models.find_table(name)
    model = service.models.find(name, parse_version(version, name))
    return describe_version(service, model) | {
        "versions": [describe_version(service, each) for each in table.by_number.values()],
        "aliases": describe_aliases(table),
        "declaration_error": table.fault,
    }


def describe_aliases(table: VersionTable) -> dict[str, dict[str, Any]]:
    """`AliasInfo` of every alias of a model."""
    places = table.locate_aliases()
    aliases = sorted(table.declaration.aliases.items())
    return {name: {"version": alias.version, "share": alias.share, "answers": places[name]} for name, alias in aliases}


def describe_version(service: Service, model: Model) -> dict[str, Any]:
    """`ModelInfo` of one version of a model."""
    info: dict[str, Any] = {
        "name": model.name,
        "version": model.version,
        "state": model.state,
        "reason": model.reason or None,
    }
    head = model.head_in_use
    if head is None:
        return info
    manifest = head.manifest.model_dump(mode="json", include=MANIFEST_FIELDS - info.keys())
    runtime = {
        "device": head.device,
        "threads": head.threads,
        "kernels": head.kernels,
        "labels": model.labels is not None,
        "exact": head.exact is not None,
        "served_precision": describe_precision(service, model),
    }
    return info | manifest | runtime


def describe_precision(service: Service, model: Model) -> dict[str, Any] | None:
    """`ServedPrecision` of one version of a model; None until one of its rows was asked again."""
    precision = service.find_precision(model)
    return None if precision is None else precision.describe()
