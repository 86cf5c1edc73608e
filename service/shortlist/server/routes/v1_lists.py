"""/v1/lists and /v1/models/../sets: lists and sets of ids that requests refer to by a name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path

import numpy as np
import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shortlist.bundle.class_sets import (
    SETS_FOLDER,
    check_set_name,
    delete_set,
    drop_leftovers,
    list_set_names,
    make_path,
    pack_set,
    read_set,
    write_set,
)
from shortlist.bundle.files import lock_folder, take_stamp
from shortlist.bundle.names import Names, resolve_names
from shortlist.core.arrays import to_id_array
from shortlist.core.checks import cut
from shortlist.core.filters import check_id_range
from shortlist.core.results import IdArray
from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput, NotFound, StorageFull, TooLarge
from shortlist.head import Head
from shortlist.server.codecs.v1_json import parse_fields, require_field
from shortlist.server.engine.body_reading import Body, read_body, run_decoder
from shortlist.server.engine.pipeline import RESULT_COPIES
from shortlist.server.engine.service import Service
from shortlist.server.messages.json_fields import parse_json
from shortlist.server.messages.json_pieces import make_json_list
from shortlist.server.messages.responses import make_json_response
from shortlist.server.scheduling.hold import Hold
from shortlist.wire.open_inference import IDS, JSON_TYPE, parse_tensors
from shortlist.wire.texts import TEXT_DATATYPE

from . import schemas
from .dependencies import ADMINISTER, ASK, READ, get_service, hold_request, read_headers

router = APIRouter(prefix="/v1/lists", tags=["v1"], dependencies=[ASK], responses=schemas.FAILURE_RESPONSES)

sets_router = APIRouter(prefix="/v1/models/{name}/sets", tags=["v1"], responses=schemas.FAILURE_RESPONSES)

SET_SCHEMA = {"type": "object", "properties": {IDS: {"type": "array"}}, "required": [IDS]}
SET_CONTENT = {JSON_TYPE: {"schema": SET_SCHEMA}} | schemas.BINARY_CONTENT
SET_BODY = {"requestBody": {"required": True, "content": SET_CONTENT}}
TABLE_INPUTS = (IDS, "offsets")

log = logging.getLogger(__name__)


class SetResponse(Response):
    """The ids of one set, written as JSON by a thread; they and their text count among the bytes that are held."""

    def __init__(self, hold: Hold, key: str, ids: IdArray) -> None:
        super().__init__()
        self.hold, self.key, self.ids = hold, key, ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the text and send it; raises Overloaded."""
        with self.hold as hold:
            hold.take_bytes(RESULT_COPIES * self.ids.nbytes)
            content = await asyncio.to_thread(encode_set, self.key, self.ids)
            await Response(content, media_type=JSON_TYPE)(scope, receive, send)


def encode_set(key: str, ids: IdArray) -> bytes:
    """The JSON of one set."""
    return orjson.dumps({"name": key, "ids": make_json_list(ids)}, option=orjson.OPT_SERIALIZE_NUMPY)


@router.get("", responses={200: {"model": schemas.ListTables}})
async def list_tables(request: Request) -> Response:
    """Every table of lists that is registered, with its size and age."""
    return make_json_response({"tables": get_service(request).named_lists.describe()})


@router.put(
    "/{name}",
    responses={200: {"model": schemas.StoredLists}},
    openapi_extra=schemas.describe_body(schemas.ListTable, binary=True),
)
async def register_lists(request: Request, name: str) -> Response:
    """Register a table of lists under a name; an existing table of that name is replaced."""
    service = get_service(request)
    with hold_request(request) as hold:
        body = await read_body(service, request.receive, read_headers(request), hold)
        lists = await run_decoder(service, body, hold, partial(read_table, body))
        service.named_lists.register(name, lists)
    return make_json_response({"name": name, "lists": len(lists), "ids": int(lists.ids.size)})


@router.delete("/{name}", responses={200: {"model": schemas.Forgotten}})
async def delete_lists(request: Request, name: str) -> Response:
    """Forget the lists of that name."""
    get_service(request).named_lists.delete(name)
    return make_json_response({"name": name})


def read_table(body: Body) -> RowLists:
    """The lists of a body, JSON or binary; raises BadInput."""
    text, binary = body.split()
    if binary is None:
        lists = require_field(parse_fields(text, ("lists",)), "lists")
        if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
            raise BadInput("lists must be a list of lists of ids")
        return RowLists.from_lists(lists).drop_repeats()
    tensors = parse_tensors(parse_json(text).get("inputs"), binary, "lists")
    if set(tensors) != set(TABLE_INPUTS):
        raise BadInput("a table of lists has the inputs 'ids' and 'offsets', whole numbers: send both")
    ids, offsets = (tensors[name].to_array("lists").copy() for name in TABLE_INPUTS)  # not to keep the body alive
    return RowLists.make(ids, offsets).drop_repeats()


@sets_router.get("", dependencies=[READ], responses={200: {"model": schemas.SetList}})
async def list_sets(request: Request, name: str) -> Response:
    """The named sets of a model that were put, with their sizes."""
    folder = find_folder(get_service(request), name)
    return make_json_response({"sets": await asyncio.to_thread(describe_sets, folder)})


@sets_router.get("/{key}", dependencies=[READ], responses={200: {"model": schemas.SetContent}})
async def read_named_set(request: Request, name: str, key: str) -> Response:
    """The ids of one set, ascending."""
    check_set_name(key)
    path = make_path(find_folder(get_service(request), name), key)
    if not path.is_file():
        raise NotFound(
            f"no set '{cut(key)}' was put for {cut(name)}: GET /v1/models/{cut(name)}/sets lists those there are"
        )
    return SetResponse(hold_request(request), key, await asyncio.to_thread(read_set, path))


@sets_router.put(
    "/{key}", dependencies=[ADMINISTER], responses={200: {"model": schemas.SetInfo}}, openapi_extra=SET_BODY
)
async def put_set(request: Request, name: str, key: str) -> Response:
    """Store a named set of classes; it replaces one of that name and is on disk before the answer."""
    service = get_service(request)
    check_set_name(key)
    head, folder = service.models.find(name, None).head, find_folder(service, name)
    with hold_request(request) as hold:
        body = await read_body(service, request.receive, read_headers(request), hold)
        ids = await run_decoder(service, body, hold, partial(read_ids, body, head.names, name))
        check_set_ids(ids, head)
        content = await asyncio.to_thread(pack_set, ids[ids >= 0])
        await asyncio.to_thread(store_set, service, folder, key, content)
    return make_json_response({"name": key, "ids": int(ids.size), "bytes": len(content)})


@sets_router.delete("/{key}", dependencies=[ADMINISTER], responses={200: {"model": schemas.Forgotten}})
async def delete_named_set(request: Request, name: str, key: str) -> Response:
    """Forget a set that was put; one of the same name in a bundle stands again."""
    check_set_name(key)
    if not await asyncio.to_thread(remove_set, find_folder(get_service(request), name), key):
        raise NotFound(f"no set '{cut(key)}' was put for {cut(name)}, or it is a bundle's own: nothing was deleted")
    return make_json_response({"name": key})


def find_folder(service: Service, name: str) -> Path:
    """The folder of a model's sets, beside its versions; raises NotFound."""
    return service.models.find(name, None).folder.parent / SETS_FOLDER


def describe_sets(folder: Path) -> list[dict[str, object]]:
    """Name, number of ids and bytes on disk of each set in a folder."""
    sets: list[dict[str, object]] = []
    for name in list_set_names(folder):
        path = make_path(folder, name)
        with contextlib.suppress(NotFound, FileNotFoundError):  # it was deleted meanwhile
            sets.append({"name": name, "ids": len(read_set(path)), "bytes": path.stat().st_size})
    return sets


def store_set(service: Service, folder: Path, key: str, content: bytes) -> None:
    """Write a set, within the limits of the server; raises TooLarge, StorageFull where the disk refuses."""
    try:
        folder.mkdir(exist_ok=True)
        with lock_folder(folder):
            drop_leftovers(folder)
            check_room(service, folder, key, len(content))
            write_set(folder, key, content)
    except OSError as error:
        raise make_storage_error(folder, error) from error


def check_room(service: Service, folder: Path, key: str, length: int) -> None:
    """Raise TooLarge where a set of `length` bytes has no room beside the other sets of a model."""
    stamps = [take_stamp(make_path(folder, other)) for other in list_set_names(folder) if other != key]
    sizes = [stamp.size for stamp in stamps if stamp is not None]  # None where it was deleted meanwhile
    limits = service.settings
    if len(sizes) >= limits.sets:
        raise TooLarge(f"{limits.sets} sets are kept for this model, as many as may be: delete some")
    if length + sum(sizes) > limits.set_bytes:
        raise TooLarge(f"sets would take over {limits.set_bytes} bytes, the limit of a model: delete some")


def remove_set(folder: Path, key: str) -> bool:
    """Remove a set; whether there was one. Raises StorageFull where the disk refuses."""
    try:
        return delete_set(folder, key)
    except OSError as error:
        raise make_storage_error(folder, error) from error


def make_storage_error(folder: Path, error: OSError) -> StorageFull:
    """The error for a disk on which no set can be changed, a condition of the server: its log has a line of it."""
    log.error("named sets in %s cannot be changed (%s)", folder, error.strerror)
    return StorageFull(
        f"the sets beside the repository cannot be changed ({error.strerror}): "
        f"make {SETS_FOLDER}/ writable, and room on its disk"
    )


def check_set_ids(ids: IdArray, head: Head) -> None:
    """Sets hold classes of the export alone; raises BadInput."""
    last, classes = int(ids.max(initial=-1)), head.manifest.classes
    if classes <= last < head.classes:
        item = last if head.names is None else f"'{head.names.read_text(last)}'"
        raise BadInput(
            f"ids hold {item}, which was added after the export: leave it out, or put it in after `shortlist compact`"
        )
    check_id_range("ids", ids, classes)


def read_ids(body: Body, names: Names | None, model: str) -> IdArray:
    """The ids of a body, JSON (ids or names) or binary; raises BadInput."""
    text, binary = body.split()
    if binary is None:
        values = require_field(parse_fields(text, (IDS,)), IDS)
        if not isinstance(values, list):
            raise BadInput(f"{IDS} must be a list of whole numbers or of names")
    else:
        tensors = parse_tensors(parse_json(text).get("inputs"), binary, "sets")
        if set(tensors) != {IDS}:
            raise BadInput(f"a set has the input '{IDS}', whole numbers or names: send it alone")
        tensor = tensors[IDS]
        check_flat(tensor.shape)
        values = tensor.to_texts().tolist() if tensor.datatype == TEXT_DATATYPE else tensor.to_array("sets")
    ids = to_id_array(IDS, resolve_names(IDS, values, names, model)) if len(values) else np.empty(0, np.int64)
    check_flat(ids.shape)
    return ids


def check_flat(shape: tuple[int, ...]) -> None:
    """Raise BadInput where the ids of a set have more than one dimension, or none."""
    if len(shape) != 1:
        raise BadInput(f"{IDS} have shape {list(shape)}: give them flat, [m]")
