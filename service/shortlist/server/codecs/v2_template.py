"""Templates of infer requests: what the JSON of a request says, where only the numbers of one tensor vary.

Clients send the same JSON again and again, with other numbers behind it. It is parsed and checked once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import Array
from shortlist.core.queries import Result
from shortlist.server.messages.headers import EncodedResponse
from shortlist.server.scheduling.tasks import TopKTask

from .v2_response import OutputFormats, PreparedResponse, complete_outputs, prepare_response


class ContextLayout(NamedTuple):
    """Where the context vectors are in a body whose JSON is `text`: all the bytes behind it, `size` of them."""

    text: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int

    def read(self, body: bytes) -> Array:
        """The context vectors of a body of this layout."""
        start = len(self.text)
        contexts: Array = np.ndarray(self.shape, self.dtype, body, start)
        return contexts.copy() if start % self.dtype.itemsize else contexts  # runtimes want aligned numbers


@dataclass(slots=True)
class InferTemplate:
    """A request that was decoded and checked, but for its context vectors.

    task: without context vectors. response: what all responses have in common, once there was one. All tasks of a
    template give results of one shape and one normalizer.
    """

    manifest: Manifest
    request_id: str
    outputs: OutputFormats
    timeout: float
    priority: int
    layout: ContextLayout
    task: TopKTask
    response: PreparedResponse | None = None

    def encode(self, result: Result) -> EncodedResponse:
        """The response's body and headers."""
        result = complete_outputs(self.outputs, self.manifest, result)
        response = self.response
        if response is None:
            response = prepare_response(self.manifest, self.request_id, self.outputs, result)
            self.response = response
        return response.fill(result)
