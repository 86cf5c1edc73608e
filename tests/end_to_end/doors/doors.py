"""Every way to ask for the same: `Head`, both clients, `/v1` and `/v2` of one server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import shortlist
from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput

from tests.support.layers import make_contexts

from .sending import Unsendable, convert_to_json

ROWS = make_contexts(rows=3, seed=6).contexts
WIDTHS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
TABLE = RowLists.from_lists([[1, 2, 3], [4], [5, 6]])


class Doors:
    """A server, and the heads that it serves, by model."""

    def __init__(self, url: str, heads: dict[str, shortlist.Head]) -> None:
        self.url, self.heads = url, heads
        self.client, self.http = shortlist.Client(url), httpx.Client(base_url=url)

    def close(self) -> None:
        self.client.close()
        self.http.close()

    def call_async_client(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What a method of a client for asyncio returns."""

        async def call() -> Any:
            async with shortlist.AsyncClient(self.url) as client:
                return await getattr(client, name)(*arguments, **options)

        return asyncio.run(call())

    def infer(self, model: str, inputs: dict[str, np.ndarray], outputs: list[str], parameters: dict[str, Any]) -> Any:
        kinds = {np.float32: "FP32", np.float64: "FP64", np.int64: "INT64", np.int32: "INT32", np.bool_: "BOOL"}
        names = {np.dtype(kind): name for kind, name in kinds.items()}
        entries = [
            {
                "name": name,
                "datatype": names[values.dtype],
                "shape": values.shape,
                "data": convert_to_json(values.ravel()),
            }
            for name, values in inputs.items()
        ]
        body = {"inputs": entries, "outputs": [{"name": name} for name in outputs], "parameters": parameters}
        content = self.post(f"/v2/models/{model}/infer", body)
        arrays = {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in content["outputs"]}
        return arrays, content["parameters"]["normalizer"]

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        response = self.http.post(path, content=json.dumps(content))
        if response.status_code == 400:
            raise BadInput(response.json()["error"])
        assert response.status_code == 200, response.text
        return response.json()


def find_outcome(call: Callable[[Doors, Any], Any], doors: Doors, case: Any) -> Any:
    """What the call gives: an answer, or the sentence of a refusal."""
    try:
        return call(doors, case)
    except BadInput as error:
        return str(error)
    except Unsendable:
        pytest.skip("there is no way to say this here")
