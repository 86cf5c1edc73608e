"""Requests as bytes, and what is read from their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import orjson
from shortlist.client import exchange
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import BadInput, ServerError
from shortlist.wire.open_inference import CONTEXT, IDS, LENGTH_HEADER, LOGPROBS, parse_tensors, split_body

PATIENCE = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Question:
    """One POST."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def wire(self, host: str) -> bytes:
        """The request as it goes over the wire."""
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True, slots=True)
class Answer:
    """ids: [B, k] int64. logprobs: [B, k] float32."""

    ids: IdArray
    logprobs: FloatArray


def infer(model: str, contexts: FloatArray, k: int, **parameters: Any) -> Question:
    """A /v2 infer request, binary both ways, just as our own client sends it."""
    ask = next(exchange.infer(model, None, {CONTEXT: contexts}, {"k": k} | parameters))
    return Question(ask.path, ask.headers, ask.content)


def topk(model: str, contexts: FloatArray, k: int) -> Question:
    """A /v1/topk request in JSON."""
    content = {"model": model, "contexts": contexts, "k": k}
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Question("/v1/topk", {"Content-Type": "application/json"}, body)


def infer_answer(headers: Mapping[str, str], body: bytes) -> Answer:
    """The arrays of a /v2 answer, binary or JSON; raises ServerError."""
    try:
        text, binary = split_body(body, headers.get(LENGTH_HEADER.lower()))
        found = parse_tensors(orjson.loads(text)["outputs"], binary, "")
        return Answer(found[IDS].to_array(""), found[LOGPROBS].to_array("").astype(np.float32, copy=False))
    except (BadInput, KeyError, TypeError, ValueError) as error:
        raise ServerError(f"the answer is no infer response ({error})") from None


def topk_answer(headers: Mapping[str, str], body: bytes) -> Answer:
    """The arrays of a /v1/topk answer; raises ServerError."""
    del headers
    try:
        found = orjson.loads(body)
        return Answer(np.array(found["ids"], np.int64), np.array(found["logprobs"], np.float32))
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(f"the answer is no JSON with ids and logprobs ({error})") from None


def ask(url: str, question: Question) -> httpx.Response:
    """One real request; raises ServerError unless it is answered with 200."""
    try:
        response = httpx.post(
            url + question.path,
            content=question.body,
            headers=dict(question.headers),
            timeout=PATIENCE,
            trust_env=False,
        )
    except httpx.TransportError as error:
        raise ServerError(f"{url} did not answer ({error})") from error
    if response.status_code != httpx.codes.OK:
        raise ServerError(f"{url}{question.path} answered {response.status_code}: {response.text[:200]}")
    return response
