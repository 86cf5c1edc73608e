"""The exchanges of beam steps, and of the lists that they refer to."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import numpy as np

from shortlist.core.arrays import Array
from shortlist.core.checks import cut
from shortlist.core.queries import BeamQuery, BeamStep
from shortlist.core.results import NO_CLASS
from shortlist.core.row_lists import RowLists
from shortlist.decoding.arguments import make_beam_query
from shortlist.errors import BadInput
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    CONTEXT,
    EOS,
    FINISHED,
    FORCED,
    IDS,
    LENGTH_HEADER,
    LENGTHS,
    LOGPROBS,
    PARENTS,
    SCORES,
    TEMPERATURE,
    describe_tensor,
    join_body,
)

from .exchange import Exchange, Request, infer, raise_for_status, send_in_parts
from .restrictions import Restrictions


def beam_step(
    model: str,
    version: int | None,
    contexts: Any,
    scores: Any,
    finished: Any,
    options: dict[str, Any],
    max_rows: int,
) -> Exchange[BeamStep]:
    """Ask for the n best continuations of each group, in requests of whole groups of at most `max_rows` rows."""
    lists = {name: options.get(name) for name in ("allow", "ban")}
    others = {name: value for name, value in options.items() if name not in (*lists, "bias")}
    query = make_beam_query(contexts, scores, finished, **others)
    restrictions = Restrictions.parse(lists, options.get("bias"), len(query.contexts))
    groups = len(query.contexts) // query.beam

    def send_part(part: slice) -> Exchange[BeamStep]:
        rows = slice(part.start * query.beam, part.stop * query.beam)
        inputs, parameters = restrictions.write(rows)
        inputs |= write_inputs(query, rows)
        outputs, normalizer = yield from infer(model, version, inputs, parameters | write_parameters(query))
        return BeamStep(outputs[PARENTS], outputs[IDS], outputs[SCORES], outputs[LOGPROBS], normalizer)

    return BeamStep.concat((yield from send_in_parts(groups, max(1, max_rows // query.beam), send_part)))


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
    text = json.dumps({"inputs": [describe_tensor(key, values, binary=True) for key, values in inputs.items()]})
    headers = {"Content-Type": BINARY_TYPE, LENGTH_HEADER: str(len(text))}
    raise_for_status((yield Request("PUT", make_path(name), join_body(text.encode(), inputs.values()), headers)))


def delete_lists(name: str) -> Exchange[None]:
    """Let the server forget the lists of a name."""
    raise_for_status((yield Request("DELETE", make_path(name))))


def make_path(name: str) -> str:
    """The path of the lists of a name; raises BadInput."""
    if not isinstance(name, str) or not name or "/" in name:
        raise BadInput(f"a name of lists is text without '/', not {cut(name)}")
    return f"/v1/lists/{quote(name, safe='')}"
