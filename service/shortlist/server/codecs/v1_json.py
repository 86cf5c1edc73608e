"""The bodies of /v1: JSON <-> arrays. -inf is null."""

from __future__ import annotations

from typing import Any

import orjson

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import parse_float_rows, parse_id_rows
from shortlist.core.checks import cut, is_count
from shortlist.core.queries import ScoreQuery, Scores, TopKQuery
from shortlist.core.results import IdArray, Labels, TopK
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import flag, parse_json, whole

TARGET = ("model", "version")
LIMITS = ("timeout", "priority")
TOPK = (*TARGET, "contexts", "k", "allow", "ban", "exact", "labels", *LIMITS)
SCORE = (*TARGET, "contexts", "ids", "exact", *LIMITS)


def parse(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    """The body's fields; raises BadInput at one that is not known, so that a misspelt `allow` is not lost."""
    fields = parse_json(body)
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise BadInput(f"there is no field '{cut(unknown)}': known are {', '.join(known)}")
    return {name: value for name, value in fields.items() if value is not None}


def required(fields: dict[str, Any], name: str) -> Any:
    """A field that must be there."""
    if name not in fields:
        raise BadInput(f"the field '{name}' is missing from the body")
    return fields[name]


def target(fields: dict[str, Any]) -> tuple[str, int | None]:
    """The model's name, and its version where one is asked for; raises BadInput."""
    name, version = required(fields, "model"), fields.get("version")
    if not isinstance(name, str):
        raise BadInput("model must be a name, as text")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise BadInput(f"version is {cut(version)}: send a whole number, or leave it out for the latest")
    return name, version


def topk_query(fields: dict[str, Any], manifest: Manifest) -> TopKQuery:
    """The question of /v1/topk; raises BadInput."""
    return TopKQuery(
        parse_float_rows("contexts", required(fields, "contexts"), manifest.dim),
        whole(required(fields, "k")),
        ids_of(fields, "allow"),
        ids_of(fields, "ban"),
        flag(fields, "exact"),
    )


def ids_of(fields: dict[str, Any], name: str) -> IdArray | None:
    """An optional list of ids, flat or one a row."""
    return parse_id_rows(name, fields[name]) if name in fields else None


def score_query(fields: dict[str, Any], manifest: Manifest) -> ScoreQuery:
    """The question of /v1/score; raises BadInput."""
    return ScoreQuery(
        parse_float_rows("contexts", required(fields, "contexts"), manifest.dim),
        parse_id_rows("ids", required(fields, "ids")),
        flag(fields, "exact"),
    )


def limits(fields: dict[str, Any]) -> tuple[float, int]:
    """`timeout` in seconds, 0 for the server's own, and `priority`, lower first; raises BadInput."""
    timeout, priority = fields.get("timeout", 0.0), fields.get("priority", 0)
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:
        raise BadInput(f"timeout is {cut(timeout)}: send seconds, from 0")
    if not is_count(priority):
        raise BadInput(f"priority is {cut(priority)}: send a whole number from 0")
    return float(timeout), priority


def wants_labels(fields: dict[str, Any]) -> bool:
    """Whether the answer is to hold printable labels."""
    return flag(fields, "labels")


def encode_topk(manifest: Manifest, top: TopK, labels: Labels | None) -> bytes:
    """The answer of /v1/topk. labels: [V + 1], the last one (None) for the id -1."""
    content: dict[str, Any] = {
        "model": manifest.name,
        "version": manifest.version,
        "ids": top.ids,
        "logprobs": top.logprobs,
        "scored": top.scored,
        "normalizer": top.normalizer,
    }
    if labels is not None:
        content["labels"] = labels[top.ids].tolist()
    return dumps(content)


def encode_scores(manifest: Manifest, scores: Scores) -> bytes:
    """The answer of /v1/score."""
    return dumps(
        {
            "model": manifest.name,
            "version": manifest.version,
            "logprobs": scores.logprobs,
            "normalizer": scores.normalizer,
        }
    )


def dumps(content: Any) -> bytes:
    """JSON; arrays as they are, what is not finite as null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
