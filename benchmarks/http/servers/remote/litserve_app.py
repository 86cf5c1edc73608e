"""LitServe over the dense layer. Runs in LitServe's environment.

python litserve_app.py PORT
"""

from __future__ import annotations

import sys
from typing import Any

import litserve  # type: ignore[import-not-found]
import numpy as np
import numpy.typing as npt
from dense_topk import MAX_BATCH_ROWS, DenseTopK  # type: ignore[import-not-found]


class Dense(litserve.LitAPI):  # type: ignore[misc]
    """`{"context": [d]}` -> `{"ids": [k], "logprobs": [k]}`."""

    def setup(self, device: str) -> None:
        del device
        self.topk = DenseTopK()

    # LitServe makes schemas of these two methods' annotations, and would validate every number by them
    def decode_request(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        return np.array(request["context"], np.float32)

    def predict(self, contexts: npt.NDArray[np.float32]) -> list[tuple[Any, Any]]:
        """Compute the rows that LitServe gathered into one batch."""
        return list(zip(*self.topk(contexts), strict=True))

    def unbatch(self, output: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the batch as it is: it is a list with one result a row already."""
        return output

    def encode_response(self, output):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Convert a row's result to lists, which JSON can hold."""
        ids, logprobs = output
        return {"ids": ids.tolist(), "logprobs": logprobs.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Dense(max_batch_size=MAX_BATCH_ROWS, batch_timeout=0.0), accelerator="cpu")
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, log_level="warning", generate_client_file=False
    )
