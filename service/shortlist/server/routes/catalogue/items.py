"""/v1/models/{name}/items: items are added, replaced and removed while a model is served."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Receive

from shortlist.core.arrays import FLOAT64_CODE, NUMBER_KINDS, Array, is_nested, parse_float_rows, parse_numbers
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput, Forbidden
from shortlist.head import Head
from shortlist.items.batch import ItemBatch
from shortlist.items.live_head import LiveHead
from shortlist.items.store import ItemStore
from shortlist.server.access.clients import read_address
from shortlist.server.codecs.v1_json import parse_fields
from shortlist.server.engine.body_reading import Body, read_body, run_decoder
from shortlist.server.engine.service import Service
from shortlist.server.messages.headers import RawHeaders
from shortlist.server.messages.responses import make_json_response
from shortlist.server.routes import schemas
from shortlist.server.routes.dependencies import ADMINISTER, OBSERVE, get_service, read_headers
from shortlist.server.scheduling.hold import Hold
from shortlist.wire.open_inference import JSON_TYPE, parse_tensors

router = APIRouter(prefix="/v1/models", tags=["v1"], responses=schemas.FAILURE_RESPONSES)

VECTORS, BIASES = "vectors", "biases"
FIELDS = ("put", VECTORS, BIASES, "remove", "source", "sequence", "inputs")


class ItemChanges(BaseModel):
    """Changes that are made together or not at all. As binary data, `inputs` describe `vectors` and `biases`."""

    model_config = ConfigDict(extra="forbid")

    put: list[str] | list[int] | None = Field(
        default=[], description="items to add or replace: names, or ids without names"
    )
    vectors: list[list[float]] | None = Field(default=[], description="[n, d], of the items that are put")
    biases: list[float] | None = Field(default=None, description="[n], added to inner products; 0 when left out")
    remove: list[str] | list[int] | None = Field(
        default=[], description="items to remove; those that there are not stay away"
    )
    source: str | None = Field(default="", description="who numbers the batches")
    sequence: int | None = Field(default=None, description="one that is not over the source's last changes nothing")


class ItemsApplied(BaseModel):
    """What became of changes, which are on the disk and in every answer from now on."""

    model: str
    version: int
    position: int = Field(description="of the last change in the model's log")
    applied: bool = Field(description="false where a batch of this or a higher sequence number was applied before")
    ids: list[int] = Field(description="of the items that were put, in the version that answers by default")


class ItemsState(BaseModel):
    """How many items of a version are changed, and up to which change it holds them itself."""

    model: str
    version: int
    position: int
    exported_position: int
    added: int
    replaced: int
    removed: int
    log_bytes: int
    sources: dict[str, int] = Field(description="the last sequence number of each source")


CONTENT = {JSON_TYPE: {"schema": ItemChanges.model_json_schema()}} | schemas.BINARY_CONTENT
BODY: dict[str, Any] = {"requestBody": {"required": True, "content": CONTENT}}


def require_items(service: Service) -> ItemStore:
    """The logs of changes; raises Forbidden where items do not change."""
    if service.items is None:
        raise Forbidden("items do not change here: start the server with --item-changes FOLDER, where logs are kept")
    return service.items


@router.put("/{name}/items", dependencies=[ADMINISTER], responses={200: {"model": ItemsApplied}}, openapi_extra=BODY)
async def put_items(request: Request, name: str) -> Response:
    """Add, replace and remove items; the answer comes once that is on the disk and in all answers after it."""
    headers, address = read_headers(request), read_address(request.scope)
    return await change_items(get_service(request), name, headers, address, request.receive)


async def change_items(service: Service, name: str, headers: RawHeaders, address: str, receive: Receive) -> Response:
    """The response to a request that changes items of the model `name`, from `address`; raises ShortlistError."""
    store, head = require_items(service), service.models.find(name).head
    ledger = store.find_ledger(head)
    client = service.identify_client(headers, address)
    with Hold(service.admission, client) as hold:
        body = await read_body(service, receive, headers, hold)
        batch = await run_decoder(service, body, hold, partial(decode_batch, body, head))
        applied = await asyncio.wrap_future(ledger.submit(batch))
    return make_json_response(describe_applied(head, batch) | applied._asdict())


def decode_batch(body: Body, head: Head) -> ItemBatch:
    """The batch of a body, JSON or binary, checked against the head; raises BadInput."""
    text, binary = body.split()
    fields = parse_fields(text, FIELDS)
    dim, inputs = head.manifest.dim, parse_tensors(fields.pop("inputs", []), binary or memoryview(b""), "items")
    tensors = {each.name: each.to_array("items") for each in inputs.values()}
    vectors = tensors.get(VECTORS)
    if vectors is None:
        vectors = parse_float_rows(VECTORS, fields.get(VECTORS, []), dim)
    biases = tensors.get(BIASES)
    if biases is None and BIASES in fields:
        biases = parse_biases(fields[BIASES])
    batch = ItemBatch.make(
        fields.get("put", []),
        to_floats(VECTORS, vectors),
        fields.get("remove", []),
        biases=None if biases is None else to_floats(BIASES, biases),
        source=fields.get("source", ""),
        sequence=fields.get("sequence"),
    )
    batch.check(dim, names=head.names is not None)
    check_new_ids(batch, head)
    return batch


def parse_biases(values: Any) -> Array:
    """Biases [n] of a body's JSON; raises BadInput."""
    if is_nested(values):
        raise BadInput(f"{BIASES} must be a flat list of numbers, one for each item")
    return parse_numbers(BIASES, values, FLOAT64_CODE)


def to_floats(what: str, values: Array) -> FloatArray:
    """Numbers of a body as float32 of their own; raises BadInput."""
    if values.dtype.kind not in NUMBER_KINDS:
        raise BadInput(f"{what} must hold numbers alone, not true or false")
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which is refused later
        return values.astype(np.float32)


def check_new_ids(batch: ItemBatch, head: Head) -> None:
    """Raise BadInput for an id that leaves others out: ids of items without names follow each other."""
    if head.names is not None or not batch.put:
        return
    new = sorted(key for key in batch.put if key >= head.classes)
    if new and new[-1] >= head.classes + len(new):
        raise BadInput(f"put holds id {new[-1]} and the next new one is {head.classes}: give new items ids in order")


def describe_applied(head: Head, batch: ItemBatch) -> dict[str, Any]:
    """`ItemsApplied` of a batch, but for what the ledger says."""
    assert isinstance(head, LiveHead)
    manifest = head.manifest
    return {"model": manifest.name, "version": manifest.version, "ids": head.items.find_ids(batch.put)}


@router.get("/{name}/items", dependencies=[OBSERVE], responses={200: {"model": ItemsState}})
async def items(request: Request, name: str) -> Response:
    """How many items of a model are changed, and how far its log is."""
    service = get_service(request)
    head = service.models.find(name).head
    ledger = require_items(service).find_ledger(head)
    assert isinstance(head, LiveHead)
    ledger.follow()
    place = {"model": head.manifest.name, "version": head.manifest.version}
    state = {"position": ledger.position, "exported_position": head.items.exported_position}
    counts = head.items.count() | {"log_bytes": ledger.file.size, "sources": dict(ledger.sources)}
    return make_json_response(place | state | counts)
