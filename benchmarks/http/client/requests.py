"""Requests as bytes, and the arrays in their responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import orjson
from shortlist.client.infer import make_infer as make_infer_request
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import BadInput, ServerError
from shortlist.wire.open_inference import CONTEXT, IDS, LENGTH_HEADER, LOGPROBS, parse_tensors, split_body

REQUEST_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """One POST: path, headers and body."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def to_bytes(self, host: str) -> bytes:
        """The request as it goes over a connection to `host`."""
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True, slots=True)
class ResponseArrays:
    """What a response holds. ids: [B, k] int64. logprobs: [B, k] float32."""

    ids: IdArray
    logprobs: FloatArray


def make_infer(model: str, contexts: FloatArray, k: int, **parameters: Any) -> Request:
    """A /v2 infer request, binary both ways, just as our own client sends it."""
    ask = make_infer_request(model, None, {CONTEXT: contexts}, {"k": k} | parameters)
    return Request(ask.path, dict(ask.headers), ask.content)


def make_topk(model: str, contexts: FloatArray, k: int) -> Request:
    """A /v1/topk request in JSON."""
    content = {"model": model, "contexts": contexts, "k": k}
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Request("/v1/topk", {"Content-Type": "application/json"}, body)


def read_infer(headers: Mapping[str, str], body: bytes) -> ResponseArrays:
    """The arrays of a /v2 response, binary or JSON; raises ServerError."""
    try:
        text, binary = split_body(body, headers.get(LENGTH_HEADER.lower()))
        outputs = parse_tensors(orjson.loads(text)["outputs"], binary, "")
        return ResponseArrays(outputs[IDS].to_array(""), outputs[LOGPROBS].to_array("").astype(np.float32, copy=False))
    except (BadInput, KeyError, TypeError, ValueError) as error:
        raise ServerError(f"the answer is no infer response ({error})") from None


def read_topk(headers: Mapping[str, str], body: bytes) -> ResponseArrays:
    """The arrays of a /v1/topk response; raises ServerError."""
    del headers
    try:
        fields = orjson.loads(body)
        return ResponseArrays(np.array(fields["ids"], np.int64), np.array(fields["logprobs"], np.float32))
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(f"the answer is no JSON with ids and logprobs ({error})") from None


def send_request(url: str, request: Request) -> httpx.Response:
    """Send one request; raises ServerError unless the response has status 200."""
    try:
        response = httpx.post(
            url + request.path,
            content=request.body,
            headers=dict(request.headers),
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )
    except httpx.TransportError as error:
        raise ServerError(f"{url} did not answer ({error})") from error
    if response.status_code != httpx.codes.OK:
        raise ServerError(f"{url}{request.path} answered {response.status_code}: {response.text[:200]}")
    return response
