"""Triton's Python backend over the dense layer: copied to <repository>/dense/1/model.py."""

from __future__ import annotations

import os
import sys
from typing import Any

# the backend embeds the system's Python, which knows nothing of the virtual environment
sys.path[:0] = os.environ["DENSE_PATH"].split(os.pathsep)

import numpy as np  # noqa: E402
import triton_python_backend_utils as triton  # type: ignore[import-not-found]  # noqa: E402
from dense_topk import DenseTopK  # type: ignore[import-not-found]  # noqa: E402


class TritonPythonModel:
    """The name that the backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        del args
        self.topk = DenseTopK()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Requests that Triton's batcher gathered, as one product."""
        contexts = [triton.get_input_tensor_by_name(request, "context").as_numpy() for request in requests]
        ends = np.cumsum([len(rows) for rows in contexts])[:-1]
        parts = (np.split(values, ends) for values in self.topk(np.concatenate(contexts)))
        return [response(*values) for values in zip(*parts, strict=True)]


def response(ids: Any, logprobs: Any) -> Any:
    return triton.InferenceResponse([triton.Tensor("ids", ids), triton.Tensor("logprobs", logprobs)])
