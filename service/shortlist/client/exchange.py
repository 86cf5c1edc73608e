"""The requests of a client and what it makes of the responses, without any I/O.

An exchange is a generator: it yields a `Request`, is sent the `Response`, and at last returns the result. `Client` and
`AsyncClient` differ only in how they send requests and wait.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from shortlist.core.arrays import Array, to_float_array, to_id_array
from shortlist.core.bias import BiasLike
from shortlist.core.checks import cut, parse_object, parse_whole_number
from shortlist.core.filters import check_list_rows
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, TopK
from shortlist.errors import (
    BadInput,
    Forbidden,
    NotFound,
    NotReady,
    Overloaded,
    ServerError,
    ShortlistError,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unsupported,
)
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    CONTEXT,
    IDS,
    LABELS,
    LENGTH_HEADER,
    LOGPROBS,
    RISK,
    SCORED,
    Tensor,
    describe_tensor,
    join_body,
    parse_tensors,
    split_body,
)
from shortlist.wire.texts import TEXT_DATATYPE, split_texts

from .restrictions import Restrictions

T = TypeVar("T")

HTTP_OK = 200
ERROR_OF_STATUS: dict[int, type[ShortlistError]] = {
    error.status: error
    for error in (BadInput, Unauthorized, Forbidden, NotFound, TooLarge, Overloaded, Unsupported, NotReady, TimedOut)
}


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, ready to be sent."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response; `headers` are looked up by names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause in seconds before the next request."""

    seconds: float


Exchange = Generator[Request, Response, T]
Steps = Generator[Request | Wait, Response, T]


def name_outputs(labels: bool, risk: bool) -> tuple[str, ...]:
    """The names of the outputs that are sent where they are asked for."""
    return tuple(name for name, is_wanted in ((LABELS, labels), (RISK, risk)) if is_wanted)


def topk(
    model: str,
    contexts: Any,
    k: int,
    version: int | None,
    lists: Mapping[str, Any],
    bias: BiasLike,
    exact: bool,
    more: tuple[str, ...],
    max_rows: int,
) -> Exchange[TopK]:
    """Ask for the k best classes of `contexts` [B, d], in requests of at most `max_rows` rows.

    lists: `allow` and `ban`, None where there is no such list. more: outputs to ask for beside the three that all have.
    """
    rows, k = to_float_array("contexts", contexts), parse_whole_number("k", k)
    restrictions = Restrictions.parse(lists, bias, len(rows))
    names = (IDS, LOGPROBS, SCORED, *more) if more else ()

    def send_part(part: slice) -> Exchange[TopK]:
        inputs, parameters = restrictions.write(part)
        parameters |= {"k": k, "exact": bool(exact)}
        outputs, normalizer = yield from infer(model, version, {CONTEXT: rows[part]} | inputs, parameters, names)
        numbers = outputs[IDS], outputs[LOGPROBS], outputs[SCORED]
        top = TopK(*numbers, normalizer, outputs.get(LABELS), outputs.get(RISK))
        if top.labels is not None:
            top.labels[top.ids == NO_CLASS] = None
        return top

    return TopK.concat((yield from send_in_parts(len(rows), max_rows, send_part)))


def logprobs(
    model: str, contexts: Any, ids: Any, version: int | None, exact: bool, max_rows: int
) -> Exchange[FloatArray]:
    """Ask for the log-probabilities [B, m] of `ids`, [B, m] or [m] for all rows."""
    rows, class_ids = to_float_array("contexts", contexts), np.atleast_2d(to_id_array("ids", ids))
    check_list_rows("ids", class_ids, len(rows))

    def send_part(part: slice) -> Exchange[FloatArray]:
        inputs = {CONTEXT: rows[part], IDS: slice_ids(class_ids, part)}
        outputs, _ = yield from infer(model, version, inputs, {"exact": bool(exact)})
        values: FloatArray = outputs[LOGPROBS]
        return values

    return np.concatenate((yield from send_in_parts(len(rows), max_rows, send_part)))


def models() -> Exchange[list[dict[str, Any]]]:
    """Ask for the models that the server has."""
    response = yield Request("GET", "/v1/models")
    entries: list[dict[str, Any]] = parse_json_object(raise_for_status(response).content)["models"]
    return entries


def ready() -> Exchange[bool]:
    """Ask whether every model is ready."""
    response = yield Request("GET", "/readyz")
    return response.status == HTTP_OK


def slice_ids(ids: IdArray, part: slice) -> IdArray:
    """Return the ids [1 or b, m] of the rows of one part; ids for all rows stay as they are."""
    return ids if len(ids) == 1 else ids[part]


def send_in_parts(rows: int, max_rows: int, send_part: Callable[[slice], Exchange[T]]) -> Exchange[list[T]]:
    """Send rows 0 to `rows` - 1 in parts of at most `max_rows`; returns the results of the parts, at least one.

    A part that the server refuses as too large is halved; raises TooLarge where a single row is.
    """
    results: list[T] = []
    start, step = 0, max_rows
    while start < rows or not results:
        stop = min(rows, start + step)
        try:
            results.append((yield from send_part(slice(start, stop))))
        except TooLarge:
            if stop - start < 2:
                raise
            step = (stop - start + 1) // 2
            continue
        start = stop
    return results


def retry_on_overload(exchange: Exchange[T], timeout: float) -> Steps[T]:
    """Pass on an exchange's requests; one refused for load is repeated when the server says, for `timeout` seconds."""
    try:
        request = next(exchange)
        while True:
            deadline = time.monotonic() + timeout
            response = yield request
            seconds = get_retry_after(response)
            while seconds is not None and time.monotonic() + seconds <= deadline:
                yield Wait(seconds)
                response = yield request
                seconds = get_retry_after(response)
            request = exchange.send(response)
    except StopIteration as end:
        result: T = end.value
        return result


def infer(
    model: str,
    version: int | None,
    inputs: Mapping[str, Array],
    parameters: dict[str, Any],
    outputs: Sequence[str] = (),
) -> Exchange[tuple[dict[str, Array], str]]:
    """Send one infer request, binary both ways; returns the outputs by name, and the normalizer.

    outputs: names of those wanted; by default those of numbers.
    """
    content = {
        "parameters": parameters | {"binary_data_output": True},
        "inputs": [describe_tensor(name, values, binary=True) for name, values in inputs.items()],
    } | ({"outputs": [{"name": name} for name in outputs]} if outputs else {})
    text = json.dumps(content).encode()
    headers = {"Content-Type": BINARY_TYPE, LENGTH_HEADER: str(len(text))}
    path = f"{format_model_path(model, version)}/infer"
    response = yield Request("POST", path, join_body(text, inputs.values()), headers)
    return parse_outputs(raise_for_status(response))


def format_model_path(model: str, version: int | None) -> str:
    """Format `/v2/models/M`, or `/v2/models/M/versions/V` for one version; raises BadInput."""
    path = f"/v2/models/{quote(model, safe='')}"
    return path if version is None else f"{path}/versions/{parse_whole_number('version', version)}"


def parse_outputs(response: Response) -> tuple[dict[str, Array], str]:
    """Parse an infer response into its outputs by name, and its normalizer; raises ServerError if it is none."""
    try:
        text, binary = split_body(response.content, response.headers.get(LENGTH_HEADER.lower()))
        content = parse_json_object(bytes(text))
        outputs = parse_tensors(content.get("outputs"), binary, str(content.get("model_name")))
        arrays = {name: read_output(tensor) for name, tensor in outputs.items()}
        return arrays, str(parse_object(content, "parameters", "the response")["normalizer"])
    except (BadInput, KeyError) as error:
        raise ServerError(f"the answer is not what a Shortlist server sends ({error}): check the URL") from error


def read_output(tensor: Tensor) -> Array:
    """An output's numbers or texts, which the caller may write to; raises BadInput."""
    if tensor.datatype == TEXT_DATATYPE and tensor.raw is not None:
        return split_texts(tensor.raw, tensor.shape)
    return tensor.to_array("").copy()


def parse_json_object(content: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object; raises ServerError."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ServerError("the answer is not JSON, so this is no Shortlist server: check the URL")
    return value


def get_retry_after(response: Response) -> float | None:
    """Return the seconds of Retry-After of a 429, None for any other response.

    Up to a tenth is added at random, so that clients refused together do not come back together.
    """
    seconds = response.headers.get("retry-after", "")
    if response.status != Overloaded.status or not seconds.isdecimal():
        return None
    return int(seconds) * random.uniform(1.0, 1.1)


def raise_for_status(response: Response) -> Response:
    """Return a response of status 200; raise the error that stands for any other, with the server's sentence."""
    if response.status == HTTP_OK:
        return response
    try:
        sentence = str(parse_json_object(response.content)["error"])
    except (ServerError, KeyError):
        body = cut(response.content.decode(errors="replace"))
        sentence = f"the server answered {response.status} without a reason ({body})"
    raise ERROR_OF_STATUS.get(response.status, ServerError)(sentence)
