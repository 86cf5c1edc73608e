"""What a client says and hears, without doing any I/O.

An exchange is a generator: it yields an `Ask`, is sent the `Told`, and returns the result. `Client` and
`AsyncClient` differ only in how they carry the two.
"""

from __future__ import annotations

import json
import operator
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from shortlist.core.arrays import Array, to_float_array, to_id_array
from shortlist.core.checks import cut, parse_object
from shortlist.core.results import FloatArray, IdArray, TopK
from shortlist.errors import (
    BadInput,
    NotFound,
    NotReady,
    Overloaded,
    ServerError,
    ShortlistError,
    TimedOut,
    TooLarge,
    Unsupported,
)
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    CONTEXT,
    IDS,
    LENGTH_HEADER,
    LOGPROBS,
    SCORED,
    describe_tensor,
    join_body,
    parse_tensors,
    split_body,
)

T = TypeVar("T")

HTTP_OK = 200
ERROR_OF_STATUS: dict[int, type[ShortlistError]] = {
    error.status: error for error in (BadInput, NotFound, TooLarge, Overloaded, Unsupported, NotReady, TimedOut)
}
WEAKEST_LAST = ("exact", "bounded", "estimated", "shortlist")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """Its response."""

    status: int
    headers: Mapping[str, str]
    content: bytes


Exchange = Generator[Request, Response, T]


def topk(
    model: str, contexts: Any, k: int, version: int | None, lists: Mapping[str, Any], exact: bool, max_rows: int
) -> Exchange[TopK]:
    """The k best classes of `contexts` [B, d], in requests of at most `max_rows` rows; lists: allow, ban."""
    rows, k = to_float_array("contexts", contexts), parse_whole_number("k", k)
    given = {name: to_id_array(name, values) for name, values in lists.items() if values is not None}
    for name, ids in given.items():
        check_rows(name, ids, len(rows))

    def ask(part: slice) -> Exchange[TopK]:
        inputs = {CONTEXT: rows[part]} | {name: slice_ids(ids, part) for name, ids in given.items()}
        outputs, normalizer = yield from infer(model, version, inputs, {"k": k, "exact": bool(exact)})
        return TopK(outputs[IDS], outputs[LOGPROBS], outputs[SCORED], normalizer)

    return joined((yield from send_in_parts(len(rows), max_rows, ask)))


def logprobs(
    model: str, contexts: Any, ids: Any, version: int | None, exact: bool, max_rows: int
) -> Exchange[FloatArray]:
    """Log-probabilities [B, m] of `ids` [m] or [B, m]."""
    rows, wanted = to_float_array("contexts", contexts), to_id_array("ids", ids)
    check_rows("ids", wanted, len(rows))

    def ask(part: slice) -> Exchange[FloatArray]:
        inputs = {CONTEXT: rows[part], IDS: slice_ids(wanted, part)}
        outputs, _ = yield from infer(model, version, inputs, {"exact": bool(exact)})
        found: FloatArray = outputs[LOGPROBS]
        return found

    return np.concatenate((yield from send_in_parts(len(rows), max_rows, ask)))


def models() -> Exchange[list[dict[str, Any]]]:
    """What /v1/models says."""
    told = yield Request("GET", "/v1/models")
    listed: list[dict[str, Any]] = parse_json(raise_for_status(told).content)["models"]
    return listed


def ready() -> Exchange[bool]:
    """Whether /readyz answers 200."""
    told = yield Request("GET", "/readyz")
    return told.status == HTTP_OK


def check_rows(name: str, ids: IdArray, rows: int) -> None:
    """Raise BadInput when per-row ids are not one list a row."""
    if ids.ndim == 2 and len(ids) not in (1, rows):
        raise BadInput(f"{name} has {len(ids)} rows for {rows} contexts: give one list for all, or one a row")


def slice_ids(ids: IdArray, part: slice) -> IdArray:
    """The ids of some rows, [1 or rows, m]; ids for all rows stay as they are."""
    return np.atleast_2d(ids) if ids.ndim == 1 or len(ids) == 1 else ids[part]


def send_in_parts(rows: int, max_rows: int, ask: Callable[[slice], Exchange[T]]) -> Exchange[list[T]]:
    """The answers of all rows, in order; a part that the server finds too large is halved. One part at least."""
    answers: list[T] = []
    start, step = 0, max_rows
    while start < rows or not answers:
        stop = min(rows, start + step)
        try:
            answers.append((yield from ask(slice(start, stop))))
        except TooLarge:
            if stop - start < 2:
                raise
            step = (stop - start + 1) // 2
            continue
        start = stop
    return answers


def joined(parts: list[TopK]) -> TopK:
    """The rows of several answers, in order; the weakest normaliser speaks for all."""
    if len(parts) == 1:
        return parts[0]
    return TopK(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.logprobs for part in parts]),
        np.concatenate([part.scored for part in parts]),
        max((part.normalizer for part in parts), key=WEAKEST_LAST.index),
    )


def infer(
    model: str, version: int | None, inputs: Mapping[str, Array], parameters: dict[str, Any]
) -> Exchange[tuple[dict[str, Array], str]]:
    """One infer request, binary both ways: the outputs by name, and the normaliser."""
    content = {
        "parameters": parameters | {"binary_data_output": True},
        "inputs": [describe_tensor(name, values, binary=True) for name, values in inputs.items()],
    }
    text = json.dumps(content).encode()
    headers = {"Content-Type": BINARY_TYPE, LENGTH_HEADER: str(len(text))}
    told = yield Request("POST", f"{model_path(model, version)}/infer", join_body(text, inputs.values()), headers)
    return parse_outputs(raise_for_status(told))


def model_path(model: str, version: int | None) -> str:
    """`/v2/models/M[/versions/V]`."""
    path = f"/v2/models/{quote(model, safe='')}"
    return path if version is None else f"{path}/versions/{parse_whole_number('version', version)}"


def parse_whole_number(what: str, value: Any) -> int:
    """`value` as int, numpy's and torch's integers too; raises BadInput."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise BadInput(f"{what} is {cut(value)}: give a whole number")


def parse_outputs(told: Response) -> tuple[dict[str, Array], str]:
    """The outputs of an infer response; raises ServerError when it is none."""
    try:
        text, binary = split_body(told.content, told.headers.get(LENGTH_HEADER.lower()))
        content = parse_json(bytes(text))
        outputs = parse_tensors(content.get("outputs"), binary, str(content.get("model_name")))
        arrays = {name: tensor.to_array("").copy() for name, tensor in outputs.items()}
        return arrays, str(parse_object(content, "parameters", "the response")["normalizer"])
    except (BadInput, KeyError) as error:
        raise ServerError(f"the answer is not what a Shortlist server sends ({error}): check the URL") from error


def parse_json(content: bytes) -> dict[str, Any]:
    """A JSON object; raises ServerError."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ServerError("the answer is not JSON, so this is no Shortlist server: check the URL")
    return found


def get_retry_after(told: Response) -> float | None:
    """Seconds after which a server that has too much to do wants to be asked again; None where it did not say so.

    Up to a tenth is added at random, so that clients who were refused together do not come back together.
    """
    wanted = told.headers.get("retry-after", "")
    if told.status != Overloaded.status or not wanted.isdecimal():
        return None
    return int(wanted) * random.uniform(1.0, 1.1)


def raise_for_status(told: Response) -> Response:
    """The response, or the typed error that the server named."""
    if told.status == HTTP_OK:
        return told
    try:
        sentence = str(parse_json(told.content)["error"])
    except (ServerError, KeyError):
        sentence = f"the server answered {told.status} without a reason ({cut(told.content.decode(errors='replace'))})"
    raise ERROR_OF_STATUS.get(told.status, ServerError)(sentence)
