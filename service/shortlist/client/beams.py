"""The exchanges of beam steps, and of the lists that they refer to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from shortlist.core.arrays import Array
from shortlist.core.checks import cut
from shortlist.core.queries import BeamQuery, BeamStep
from shortlist.core.results import NO_CLASS
from shortlist.core.row_lists import RowLists
from shortlist.decoding.arguments import check_step_options, make_beam_query
from shortlist.errors import BadInput
from shortlist.wire.open_inference import (
    CONTEXT,
    EOS,
    FINISHED,
    FORCED,
    IDS,
    LENGTHS,
    LOGPROBS,
    PARENTS,
    SCORES,
    TEMPERATURE,
    describe_tensor,
)

from .exchange import send_in_parts
from .infer import make_binary_headers, make_infer, read_infer, view_bytes
from .messages import Exchange, Limits, Request, Response, quote_name
from .responses import raise_for_status
from .restrictions import Restrictions


def beam_step(
    model: str,
    version: int | None,
    contexts: Any,
    scores: Any,
    finished: Any,
    options: dict[str, Any],
    limits: Limits,
) -> Exchange[BeamStep]:
    """Ask for the n best continuations of each group, in requests of whole groups within `limits`."""
    check_step_options(options)
    lists = {name: options.get(name) for name in ("allow", "ban")}
    others = {name: value for name, value in options.items() if name not in (*lists, "bias")}
    query = make_beam_query(contexts, scores, finished, **others)
    restrictions = Restrictions.parse(lists, options.get("bias"), len(query.contexts))
    groups = len(query.contexts) // query.beam

    def make_request(part: slice) -> Request:
        rows = slice(part.start * query.beam, part.stop * query.beam)
        inputs, parameters = restrictions.write(rows)
        parameters = {**parameters, **write_parameters(query), **limits.parameters}
        return make_infer(model, version, {**inputs, **write_inputs(query, rows)}, parameters)

    max_groups = max(1, limits.max_rows // query.beam)
    return send_in_parts(groups, max_groups, make_request, read_beam_step, BeamStep.concat)


def read_beam_step(response: Response) -> BeamStep:
    """The continuations that a response holds; raises the errors of `read_infer`."""
    outputs, parameters = read_infer(response)
    return BeamStep(outputs[PARENTS], outputs[IDS], outputs[SCORES], outputs[LOGPROBS], parameters["normalizer"])


def write_inputs(query: BeamQuery, rows: slice) -> dict[str, Array]:
    """The inputs of a step's `rows`; what says nothing is left out."""
    inputs: dict[str, Array] = {CONTEXT: query.contexts[rows], SCORES: query.scores[rows], EOS: query.eos}
    if query.finished[rows].any():
        inputs[FINISHED] = query.finished[rows]
    if query.forced is not None and (query.forced[rows] != NO_CLASS).any():
        inputs[FORCED] = query.forced[rows]
    if query.lengths is not None and query.min_length > 0:
        inputs[LENGTHS] = np.broadcast_to(query.lengths, len(query.contexts))[rows]
    if (query.temperature != 1).any():
        inputs[TEMPERATURE] = np.broadcast_to(query.temperature, len(query.contexts))[rows]
    return inputs


def write_parameters(query: BeamQuery) -> dict[str, Any]:
    """The parameters of a step."""
    parameters = {"beam": query.beam, "n": query.n, "exact": query.exact}
    return parameters | ({"min_length": query.min_length} if query.lengths is not None else {})


def register_lists(name: str, lists: RowLists | list[Any]) -> Exchange[None]:
    """Let the server know a table of lists, in its own order, by a name."""
    table = lists if isinstance(lists, RowLists) else RowLists.from_lists(lists)
    inputs: dict[str, Array] = {IDS: table.ids, "offsets": table.offsets}
    text = json.dumps(
        {"inputs": [describe_tensor(key, values, binary=True) for key, values in inputs.items()]}
    ).encode()
    parts: tuple[bytes | memoryview, ...] = (text, *map(view_bytes, inputs.values()))
    raise_for_status((yield Request("PUT", make_path(name), parts, make_binary_headers(text))))


def delete_lists(name: str) -> Exchange[None]:
    """Let the server forget the lists of a name."""
    raise_for_status((yield Request("DELETE", make_path(name), is_safe=False)))


def make_path(name: str) -> str:
    """The path of the lists of a name; raises BadInput."""
    if not isinstance(name, str) or not name or "/" in name:
        raise BadInput(f"a name of lists is text without '/', not {cut(name)}")
    return f"/v1/lists/{quote_name('list', name)}"
