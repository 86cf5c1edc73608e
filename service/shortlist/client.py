"""Clients for a running server: v2 protocol, binary on the wire, the same result type as in-process.

`Requests` builds requests and reads responses without doing any I/O; `Client` and `AsyncClient` only send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import numpy.typing as npt

from . import errors
from .errors import BadInput, ServerError, ShortlistError, Unreachable
from .protocol import BINARY_TYPE, LENGTH_HEADER, Array, binary_entry, from_bytes, split_blobs
from .result import FloatArray, TopK

TIMEOUT = 30.0
MAX_ROWS = 1024

BY_STATUS: dict[int, type[ShortlistError]] = {
    400: BadInput,
    404: errors.NotFound,
    413: errors.TooLarge,
    501: errors.Unsupported,
    503: errors.NotReady,
}


def as_contexts(values: Any) -> FloatArray:
    """numpy, torch (any device, any float dtype) or nested lists as float32 [B, d]; raises BadInput."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    try:
        contexts = np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError):
        raise BadInput("contexts must be numbers of shape [rows, d]") from None
    if contexts.ndim != 2:
        raise BadInput(f"contexts have shape {list(contexts.shape)}: give [rows, d]")
    return contexts


def as_lists(values: npt.ArrayLike | None, rows: int) -> Array | None:
    """Allow or ban as int64 [rows, m]."""
    if values is None:
        return None
    ids = np.atleast_2d(np.asarray(values, np.int64))
    return np.ascontiguousarray(np.broadcast_to(ids, (rows, ids.shape[1])) if len(ids) == 1 else ids)


@dataclass(frozen=True)
class Sending:
    """One HTTP request."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] | None = None


def model_path(model: str, version: int | None) -> str:
    """`/v2/models/M[/versions/V]`."""
    return f"/v2/models/{quote(model, safe='')}" + ("" if version is None else f"/versions/{version}")


def infer_request(
    model: str, version: int | None, contexts: FloatArray, k: int, exact: bool, lists: Mapping[str, Array | None]
) -> Sending:
    """A binary infer request."""
    tensors: dict[str, Array] = {"context": contexts}
    tensors |= {name: ids for name, ids in lists.items() if ids is not None}
    content = {
        "parameters": {"k": k, "exact": exact, "binary_data_output": True},
        "inputs": [binary_entry(name, array) for name, array in tensors.items()],
    }
    header = json.dumps(content).encode()
    headers = {"Content-Type": BINARY_TYPE, LENGTH_HEADER: str(len(header))}
    body = b"".join([header, *(array.tobytes() for array in tensors.values())])
    return Sending("POST", f"{model_path(model, version)}/infer", body, headers)


def read_topk(response: httpx.Response) -> TopK:
    """The answer of an infer request."""
    body = response.content
    size = int(response.headers[LENGTH_HEADER])
    header = json.loads(body[:size])
    blobs = split_blobs(header["outputs"], memoryview(body)[size:])
    arrays = {
        entry["name"]: from_bytes(entry, blob)
        for entry, blob in zip(header["outputs"], blobs, strict=True)
        if blob is not None
    }
    return TopK(arrays["ids"], arrays["logprobs"], arrays["scored"], header["parameters"]["normalizer"])


def score_request(model: str, version: int | None, contexts: FloatArray, ids: Array, exact: bool) -> Sending:
    """A `/v1/score` request."""
    content: dict[str, Any] = {"model": model, "contexts": contexts.tolist(), "ids": ids.tolist(), "exact": exact}
    if version is not None:
        content["version"] = version
    return Sending("POST", "/v1/score", json.dumps(content).encode(), {"Content-Type": "application/json"})


def read_scores(response: httpx.Response) -> FloatArray:
    """Null is -inf."""
    values = np.array(response.json()["logprobs"], np.float32)
    return np.where(np.isnan(values), np.float32(-np.inf), values)


def checked(response: httpx.Response) -> httpx.Response:
    """The response, or the typed error that the server named."""
    if response.status_code == 200:
        return response
    try:
        sentence = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        sentence = f"the server answered {response.status_code} without a reason"
    raise BY_STATUS.get(response.status_code, ServerError)(sentence)


def unreachable(url: str, error: httpx.TransportError) -> Unreachable:
    """A connection that failed or timed out, in one sentence."""
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"{url} did not answer in time: raise the timeout or send fewer rows")
    return Unreachable(f"{url} cannot be reached ({error}): is the server running there?")


def joined(parts: list[TopK]) -> TopK:
    """The answers of a split batch, in order."""
    if len(parts) == 1:
        return parts[0]
    return TopK(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.logprobs for part in parts]),
        np.concatenate([part.scored for part in parts]),
        parts[0].normalizer,
    )


class Requests:
    """What both clients share: a batch split into requests.

    A server decides on dense by the rows of one request, so a split batch may be answered by another plan than a
    whole one.
    """

    def __init__(self, url: str, timeout: float, max_rows: int) -> None:
        """url: as in http://127.0.0.1:8000. timeout: seconds a request. max_rows: context vectors a request."""
        self.url, self.timeout, self.max_rows = url.rstrip("/"), timeout, max_rows

    def topk_requests(
        self, model: str, contexts: Any, k: int, version: int | None, allow: Any, ban: Any, exact: bool
    ) -> list[Sending]:
        """One request for every `max_rows` rows; one without rows where there are none."""
        rows = as_contexts(contexts)
        lists = {"allow": as_lists(allow, len(rows)), "ban": as_lists(ban, len(rows))}
        parts = []
        for start in range(0, max(len(rows), 1), self.max_rows):
            part = slice(start, start + self.max_rows)
            own = {name: None if ids is None else np.ascontiguousarray(ids[part]) for name, ids in lists.items()}
            parts.append(infer_request(model, version, rows[part], k, exact, own))
        return parts

    def score_requests(self, model: str, contexts: Any, ids: Any, version: int | None, exact: bool) -> list[Sending]:
        """As `topk_requests`."""
        rows, wanted = as_contexts(contexts), np.asarray(ids, np.int64)
        starts = range(0, max(len(rows), 1), self.max_rows)
        return [
            score_request(
                model, version, rows[start : start + self.max_rows], wanted[start : start + self.max_rows], exact
            )
            for start in starts
        ]


class Client(Requests):
    """A blocking client with keep-alive. Use as a context manager, or `close` it."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, max_rows: int = MAX_ROWS) -> None:
        """See Requests."""
        super().__init__(url, timeout, max_rows)
        self.http = httpx.Client(base_url=self.url, timeout=timeout, trust_env=False)

    def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: npt.ArrayLike | None = None, ban: npt.ArrayLike | None = None, exact: bool = False,
    ) -> TopK:  # fmt: skip
        """As Head.topk, over HTTP; numpy or torch. Raises BadInput, NotFound, NotReady, Unreachable, ServerError."""
        requests = self.topk_requests(model, contexts, k, version, allow, ban, exact)
        return joined([read_topk(self.send(request)) for request in requests])

    def logprobs(
        self, model: str, contexts: Any, ids: npt.ArrayLike, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """As Head.logprobs, over HTTP."""
        requests = self.score_requests(model, contexts, ids, version, exact)
        return np.concatenate([read_scores(self.send(request)) for request in requests])

    def models(self) -> list[dict[str, Any]]:
        """What the server serves."""
        models: list[dict[str, Any]] = self.send(Sending("GET", "/v1/models")).json()["models"]
        return models

    def ready(self) -> bool:
        """Whether every model is ready; False where no server answers."""
        try:
            return bool(self.send(Sending("GET", "/readyz")))
        except (errors.NotReady, Unreachable):
            return False

    def send(self, request: Sending) -> httpx.Response:
        """One round trip; raises the typed error."""
        try:
            return checked(
                self.http.request(request.method, request.path, content=request.content, headers=request.headers)
            )
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Requests):
    """The same for asyncio."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, max_rows: int = MAX_ROWS) -> None:
        """See Requests."""
        super().__init__(url, timeout, max_rows)
        self.http = httpx.AsyncClient(base_url=self.url, timeout=timeout, trust_env=False)

    async def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: npt.ArrayLike | None = None, ban: npt.ArrayLike | None = None, exact: bool = False,
    ) -> TopK:  # fmt: skip
        """See Client.topk."""
        requests = self.topk_requests(model, contexts, k, version, allow, ban, exact)
        return joined([read_topk(await self.send(request)) for request in requests])

    async def logprobs(
        self, model: str, contexts: Any, ids: npt.ArrayLike, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """See Client.logprobs."""
        requests = self.score_requests(model, contexts, ids, version, exact)
        return np.concatenate([read_scores(await self.send(request)) for request in requests])

    async def models(self) -> list[dict[str, Any]]:
        """See Client.models."""
        models: list[dict[str, Any]] = (await self.send(Sending("GET", "/v1/models"))).json()["models"]
        return models

    async def ready(self) -> bool:
        """See Client.ready."""
        try:
            return bool(await self.send(Sending("GET", "/readyz")))
        except (errors.NotReady, Unreachable):
            return False

    async def send(self, request: Sending) -> httpx.Response:
        """See Client.send."""
        try:
            return checked(
                await self.http.request(request.method, request.path, content=request.content, headers=request.headers)
            )
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
