"""The requests of a client and what it makes of the responses, without any I/O.

An exchange is a generator: it yields a `Request`, is sent the `Response`, and at last returns the result. `Client` and
`AsyncClient` differ only in how they send requests and wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from shortlist.bundle.names import has_names, pad_names
from shortlist.core.arrays import Array, to_float_array, to_id_array
from shortlist.core.bias import BiasLike
from shortlist.core.checks import parse_whole_number
from shortlist.core.draws.sampling import parse_sampling
from shortlist.core.filters import check_list_rows
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, TopK
from shortlist.errors import ServerError, TooLarge
from shortlist.wire.open_inference import (
    CONTEXT,
    IDS,
    LABELS,
    LOGPROBS,
    NAMES,
    POSITION,
    RISK,
    SCORED,
    SCORES,
    SEED,
    TEMPERATURE,
    describe_tensor,
)

from .infer import make_binary_headers, make_infer, read_infer, view_bytes
from .messages import HTTP_OK, Exchange, Limits, Request, Response, T, quote_name
from .responses import parse_json_object, raise_for_status
from .restrictions import Restrictions, write_sets

Answer = TypeVar("Answer", TopK, FloatArray)


def name_outputs(more: Mapping[str, bool]) -> tuple[str, ...]:
    """The names of all outputs where some of `more` are wanted beside the usual ones, else none."""
    if not any(more.values()):
        return ()
    return IDS, LOGPROBS, SCORED, *(name for name, is_wanted in more.items() if is_wanted)


def topk(
    model: str,
    contexts: Any,
    k: int,
    version: int | None,
    lists: Mapping[str, Any],
    bias: BiasLike,
    exact: bool,
    names: tuple[str, ...],
    limits: Limits,
    sets: Mapping[str, Any] = MappingProxyType({}),
) -> Exchange[TopK]:
    """Ask for the k best classes of `contexts` [B, d], in requests within `limits`.

    lists: `allow` and `ban`, None where there is no such list. names: of the outputs, none for the three that all have.
    sets: `within` and `without`, a name of a set or a list of names; None or an empty list names none.
    """
    rows, k = to_float_array("contexts", contexts), parse_whole_number("k", k)
    restrictions = Restrictions.parse(lists, bias, len(rows))
    named = write_sets(sets)

    def make_request(part: slice) -> Request:
        inputs, parameters = restrictions.write(part)
        parameters = {**parameters, **named, "k": k, "exact": bool(exact), **limits.parameters}
        return make_infer(model, version, {CONTEXT: take_part(rows, part), **inputs}, parameters, names)

    return expect_rows(len(rows), send_in_parts(len(rows), limits.max_rows, make_request, read_topk, TopK.concat))


def sample(
    model: str,
    contexts: Any,
    seed: Any,
    position: Any,
    temperature: Any,
    parameters: Mapping[str, Any],
    version: int | None,
    lists: Mapping[str, Any],
    bias: BiasLike,
    limits: Limits,
) -> Exchange[TopK]:
    """Ask for draws for `contexts` [B, d], in requests within `limits`.

    parameters: `draws`, `k` and `top_p`, None where they are left out.
    """
    rows = to_float_array("contexts", contexts)
    restrictions = Restrictions.parse(lists, bias, len(rows))
    draws, top_k, top_p = (parameters[name] for name in ("draws", "k", "top_p"))
    sampling = parse_sampling(len(rows), seed, position, temperature, draws, top_k, top_p)
    numbers_of_draws = {"draws": sampling.draws, "k": sampling.top_k, "top_p": sampling.top_p}  # Python's own
    options = {name: value for name, value in numbers_of_draws.items() if parameters[name] is not None}

    def make_request(part: slice) -> Request:
        inputs, written = restrictions.write(part)
        some = sampling.slice_rows(part.start, part.stop)
        numbers = {SEED: some.seeds, POSITION: some.positions, TEMPERATURE: some.temperatures}
        inputs = {CONTEXT: take_part(rows, part), **inputs, **numbers}
        return make_infer(model, version, inputs, {**written, **options, **limits.parameters})

    return expect_rows(len(rows), send_in_parts(len(rows), limits.max_rows, make_request, read_topk, TopK.concat))


def read_topk(response: Response) -> TopK:
    """The classes that a response holds; raises the errors of `read_infer`."""
    outputs, parameters = read_infer(response)
    numbers = outputs[IDS], outputs[LOGPROBS], outputs[SCORED]
    more: dict[str, Any] = {name: outputs[name] for name in (LABELS, NAMES, RISK, SCORES) if name in outputs}
    top = TopK(*numbers, parameters["normalizer"], promise=parameters.get("promise"), **more)
    for texts in (top.labels, top.names):
        if texts is not None:
            texts[top.ids == NO_CLASS] = None
    return top


def logprobs(
    model: str, contexts: Any, ids: Any, version: int | None, exact: bool, limits: Limits
) -> Exchange[FloatArray]:
    """Ask for the log-probabilities [B, m] of `ids`, [B, m] or [m] for all rows."""
    rows = to_float_array("contexts", contexts)
    class_ids = np.atleast_2d(pad_names("ids", ids) if has_names(ids) else to_id_array("ids", ids))
    check_list_rows("ids", class_ids, len(rows))

    def make_request(part: slice) -> Request:
        inputs = {CONTEXT: take_part(rows, part), IDS: slice_ids(class_ids, part)}
        return make_infer(model, version, inputs, {"exact": bool(exact), **limits.parameters})

    parts = send_in_parts(len(rows), limits.max_rows, make_request, read_logprobs, np.concatenate)
    return expect_rows(len(rows), parts)


def read_logprobs(response: Response) -> FloatArray:
    """The log-probabilities that a response holds; raises the errors of `read_infer`."""
    values: FloatArray = read_infer(response)[0][LOGPROBS]
    return values


def models() -> Exchange[list[dict[str, Any]]]:
    """Ask for the models that the server has."""
    response = yield Request("GET", "/v1/models")
    entries: list[dict[str, Any]] = parse_json_object(raise_for_status(response).content)["models"]
    return entries


def recall(model: str, contexts: Any, version: int | None) -> Exchange[dict[str, Any]]:
    """Ask how precise a model is on `contexts` [n, d]."""
    rows = to_float_array("contexts", contexts)
    text = json.dumps({"inputs": [describe_tensor(CONTEXT, rows, binary=True)]}).encode()
    path = f"/v1/models/{quote_name('model', model)}/recall" + ("" if version is None else f"?version={version}")
    response = yield Request("POST", path, (text, view_bytes(rows)), make_binary_headers(text))
    return parse_json_object(raise_for_status(response).content)


def ready() -> Exchange[bool]:
    """Ask whether every model is ready."""
    response = yield Request("GET", "/readyz")
    return response.status == HTTP_OK


def take_part(rows: Array, part: slice) -> Array:
    """Return the rows of one part, all of them as they are."""
    return rows if part.stop - part.start == len(rows) else rows[part]


def slice_ids(ids: IdArray, part: slice) -> IdArray:
    """Return the ids [1 or b, m] of the rows of one part; ids for all rows stay as they are."""
    return ids if len(ids) == 1 else ids[part]


def expect_rows(rows: int, answer: Exchange[Answer]) -> Exchange[Answer]:
    """The same exchange, which raises ServerError where the answer is not of so many rows."""
    result = yield from answer
    answered = len(result.ids if isinstance(result, TopK) else result)
    if answered != rows:
        raise ServerError(
            f"the answer has {answered} rows and {rows} were asked for: look for a proxy that mixes them up"
        )
    return result


def send_in_parts(
    rows: int,
    max_rows: int,
    make_request: Callable[[slice], Request],
    read: Callable[[Response], T],
    join: Callable[[list[T]], T],
) -> Exchange[T]:
    """Send rows 0 to `rows` - 1 in parts of at most `max_rows`, and join what is read of the responses, at least one.

    A part that the server refuses as too large is halved; where a single row is, `read` says so.
    """
    results: list[T] = []
    start, step = 0, max_rows
    while start < rows or not results:
        stop = min(rows, start + step)
        response = yield make_request(slice(start, stop))
        if response.status == TooLarge.status and stop - start > 1:
            step = (stop - start + 1) // 2
            continue
        results.append(read(response))
        start = stop
    return results[0] if len(results) == 1 else join(results)
