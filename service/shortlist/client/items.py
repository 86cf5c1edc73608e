"""The exchange by which a client changes items of a model that is served."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from shortlist.core.arrays import Array, to_float_array
from shortlist.core.checks import cut, parse_whole_number
from shortlist.errors import BadInput
from shortlist.wire.open_inference import describe_tensor

from .infer import make_binary_headers, view_bytes
from .messages import Exchange, Request, quote_name
from .responses import parse_json_object, raise_for_status


def put_items(
    model: str, put: Any, vectors: Any, remove: Any, biases: Any, source: str, sequence: int | None
) -> Exchange[dict[str, Any]]:
    """Add, replace and remove items.

    A request that may have been lost is sent again only with a sequence number, by which the server knows it: without
    one it would be made twice, the second time over what others changed in between.
    """
    fields: dict[str, Any] = {"put": list_keys("put", put), "remove": list_keys("remove", remove), "source": source}
    if sequence is not None:
        fields["sequence"] = parse_whole_number("sequence", sequence)
    numbers: dict[str, Array] = {}
    if fields["put"]:
        numbers["vectors"] = to_float_array("vectors", vectors)
        if biases is not None:
            numbers["biases"] = np.ascontiguousarray(biases, np.float32)
    inputs = [describe_tensor(name, values, binary=True) for name, values in numbers.items()]
    text = json.dumps({**fields, "inputs": inputs}).encode()
    parts: tuple[bytes | memoryview, ...] = (text, *map(view_bytes, numbers.values()))
    request = Request("PUT", make_path(model), parts, make_binary_headers(text), is_safe=sequence is not None)
    return parse_json_object(raise_for_status((yield request)).content)


def get_items(model: str) -> Exchange[dict[str, Any]]:
    """Ask how many items of a model are changed."""
    return parse_json_object(raise_for_status((yield Request("GET", make_path(model)))).content)


def list_keys(what: str, keys: Any) -> list[Any]:
    """Names or ids, of any sequence or array, as a list; raises BadInput for a single name, whose letters it is not."""
    if isinstance(keys, str):
        raise BadInput(f"{what} is '{cut(keys)}': give a list of names or ids")
    values = keys.tolist() if hasattr(keys, "tolist") else keys
    return [key.item() if isinstance(key, np.generic) else key for key in values]


def make_path(model: str) -> str:
    """The path of the items of a model."""
    return f"/v1/models/{quote_name('model', model)}/items"
