"""Named sets of a model's classes: the requests that put, delete and list them."""

from __future__ import annotations

import json
from typing import Any

from shortlist.bundle.names import has_names, pad_names
from shortlist.core.arrays import Array, to_id_array
from shortlist.core.checks import cut
from shortlist.errors import BadInput
from shortlist.wire.open_inference import IDS

from .infer import describe_input, make_binary_headers, view_bytes
from .messages import Exchange, Request, quote_name
from .responses import parse_json_object, raise_for_status


def put_set(model: str, name: str, ids: Any) -> Exchange[None]:
    """Let the server know a set of `ids` [m], ids or names of classes, by a name."""
    values: Array = pad_names(IDS, ids) if has_names(ids) else to_id_array(IDS, ids)
    buffer = view_bytes(values)
    text = json.dumps({"inputs": [describe_input(IDS, values.dtype, values.shape, buffer.nbytes)]}).encode()
    raise_for_status((yield Request("PUT", make_path(model, name), (text, buffer), make_binary_headers(text))))


def delete_set(model: str, name: str) -> Exchange[None]:
    """Let the server forget a set."""
    raise_for_status((yield Request("DELETE", make_path(model, name), is_safe=False)))


def list_sets(model: str) -> Exchange[list[dict[str, Any]]]:
    """Ask for the sets that were put."""
    response = yield Request("GET", f"/v1/models/{quote_name('model', model)}/sets")
    sets: list[dict[str, Any]] = parse_json_object(raise_for_status(response).content)["sets"]
    return sets


def make_path(model: str, name: str) -> str:
    """The path of a set; raises BadInput."""
    if not isinstance(name, str) or not name or "/" in name:
        raise BadInput(f"a name of a set is text without '/', not {cut(name)}")
    return f"/v1/models/{quote_name('model', model)}/sets/{quote_name('set', name)}"
