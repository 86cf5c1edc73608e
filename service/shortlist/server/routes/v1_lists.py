"""/v1/lists: lists of ids that requests refer to by a name."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput
from shortlist.server.codecs.v1_json import parse_fields, require_field
from shortlist.server.messages.headers import JSON_LENGTH
from shortlist.server.messages.json_fields import parse_json
from shortlist.server.messages.responses import make_json_response
from shortlist.server.scheduling.hold import Hold
from shortlist.wire.open_inference import IDS, parse_tensors, split_body

from . import schemas
from .dependencies import ASK, get_service

router = APIRouter(prefix="/v1/lists", tags=["v1"], dependencies=[ASK], responses=schemas.FAILURE_RESPONSES)

TABLE_INPUTS = (IDS, "offsets")


@router.get("", responses={200: {"model": schemas.ListTables}})
async def list_tables(request: Request) -> Response:
    """Every table of lists that is registered, with its size and age."""
    return make_json_response({"tables": get_service(request).named_lists.describe()})


@router.put("/{name}", openapi_extra=schemas.describe_body(schemas.ListTable, binary=True))
async def register_lists(request: Request, name: str) -> Response:
    """Know lists by a name from now on, in place of what it named before."""
    service, headers = get_service(request), dict(request.scope["headers"])
    address = request.client.host if request.client else ""
    with Hold(service.admission, service.identify_client(headers, address)) as hold:
        try:
            body = await service.bodies.read(request.receive, headers, time.perf_counter(), hold)
        except ClientDisconnect:
            raise BadInput("the connection closed before the whole body had come: send it again") from None
        header = headers.get(JSON_LENGTH)
        lists = await asyncio.to_thread(read_table, body, None if header is None else header.decode("latin-1"))
        service.named_lists.register(name, lists)
    return make_json_response({"name": name, "lists": len(lists), "ids": int(lists.ids.size)})


@router.delete("/{name}")
async def delete_lists(request: Request, name: str) -> Response:
    """Forget the lists of that name."""
    get_service(request).named_lists.delete(name)
    return make_json_response({"name": name})


def read_table(body: bytes, header: str | None) -> RowLists:
    """The lists of a body, JSON or binary; raises BadInput."""
    if header is None:
        lists = require_field(parse_fields(body, ("lists",)), "lists")
        if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
            raise BadInput("lists must be a list of lists of ids")
        return RowLists.from_lists(lists)
    text, binary = split_body(body, header)
    tensors = parse_tensors(parse_json(text).get("inputs"), binary, "lists")
    if set(tensors) != set(TABLE_INPUTS):
        raise BadInput("a table of lists has the inputs 'ids' and 'offsets', whole numbers: send both")
    ids, offsets = (tensors[name].to_array("lists").copy() for name in TABLE_INPUTS)  # not to keep the body alive
    return RowLists.make(ids, offsets)
