"""The bodies of /v1: JSON <-> arrays. -inf is null."""

from __future__ import annotations

from typing import Any

import orjson

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import parse_float_rows, parse_id_rows
from shortlist.core.checks import cut, is_count, parse_whole_number
from shortlist.core.queries import ScoreQuery, Scores, TopKQuery
from shortlist.core.results import IdArray, Labels, TopK
from shortlist.errors import BadInput
from shortlist.server.messages.headers import CONTENT_TYPE, EncodedResponse, make_length_header
from shortlist.server.messages.json_fields import parse_json, read_flag
from shortlist.server.messages.json_pieces import make_json_list
from shortlist.wire.open_inference import JSON_TYPE

TARGET_FIELDS = ("model", "version")
LIMIT_FIELDS = ("timeout", "priority")
TOPK_FIELDS = (*TARGET_FIELDS, "contexts", "k", "allow", "ban", "exact", "labels", *LIMIT_FIELDS)
SCORE_FIELDS = (*TARGET_FIELDS, "contexts", "ids", "exact", *LIMIT_FIELDS)
JSON_CONTENT = (CONTENT_TYPE, JSON_TYPE.encode())


def parse_fields(body: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """The body's fields; raises BadInput at one that is not known, so that a misspelt `allow` is not lost."""
    fields = parse_json(body)
    unknown = next((name for name in fields if name not in names), None)
    if unknown is not None:
        raise BadInput(f"there is no field '{cut(unknown)}': known are {', '.join(names)}")
    return {name: value for name, value in fields.items() if value is not None}


def require_field(fields: dict[str, Any], name: str) -> Any:
    """A field that must be there; raises BadInput."""
    if name not in fields:
        raise BadInput(f"the field '{name}' is missing from the body")
    return fields[name]


def read_target(fields: dict[str, Any]) -> tuple[str, int | None]:
    """The model's name, and its version where one is asked for; raises BadInput."""
    name, version = require_field(fields, "model"), fields.get("version")
    if not isinstance(name, str):
        raise BadInput("model must be a name, as text")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise BadInput(f"version is {cut(version)}: send a whole number, or leave it out for the latest")
    return name, version


def read_topk_query(fields: dict[str, Any], dim: int) -> TopKQuery:
    """The query of /v1/topk to a model of `dim` numbers a context vector; raises BadInput."""
    return TopKQuery(
        parse_float_rows("contexts", require_field(fields, "contexts"), dim),
        parse_whole_number("k", require_field(fields, "k")),
        read_ids(fields, "allow"),
        read_ids(fields, "ban"),
        read_flag(fields, "exact"),
    )


def read_ids(fields: dict[str, Any], name: str) -> IdArray | None:
    """An optional list of ids, flat or one a row."""
    return parse_id_rows(name, fields[name]) if name in fields else None


def read_score_query(fields: dict[str, Any], dim: int) -> ScoreQuery:
    """The query of /v1/score to a model of `dim` numbers a context vector; raises BadInput."""
    return ScoreQuery(
        parse_float_rows("contexts", require_field(fields, "contexts"), dim),
        parse_id_rows("ids", require_field(fields, "ids")),
        read_flag(fields, "exact"),
    )


def read_limits(fields: dict[str, Any]) -> tuple[float, int]:
    """`timeout` in seconds, 0 for the server's own, and `priority`, lower first; raises BadInput."""
    timeout, priority = fields.get("timeout", 0.0), fields.get("priority", 0)
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:
        raise BadInput(f"timeout is {cut(timeout)}: send seconds, from 0")
    if not is_count(priority):
        raise BadInput(f"priority is {cut(priority)}: send a whole number from 0")
    return float(timeout), priority


def encode_topk(manifest: Manifest, labels: Labels | None, top: TopK) -> EncodedResponse:
    """The response of /v1/topk. labels: [V + 1], the last one (None) for the id -1; None where none are wanted."""
    content: dict[str, Any] = {
        "model": manifest.name,
        "version": manifest.version,
        "ids": make_json_list(top.ids),
        "logprobs": make_json_list(top.logprobs),
        "scored": top.scored,
        "normalizer": top.normalizer,
    }
    if labels is not None:
        content["labels"] = make_json_list(top.ids, lambda ids: labels[ids].tolist())
    return encode_json(content)


def encode_scores(manifest: Manifest, scores: Scores) -> EncodedResponse:
    return encode_json(
        {
            "model": manifest.name,
            "version": manifest.version,
            "logprobs": make_json_list(scores.logprobs),
            "normalizer": scores.normalizer,
        }
    )


def encode_json(content: dict[str, Any]) -> EncodedResponse:
    """JSON with its headers; arrays as they are, numbers that are not finite as null."""
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return text, [JSON_CONTENT, make_length_header(text)]
