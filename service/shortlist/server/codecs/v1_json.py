"""The bodies of /v1: JSON <-> arrays. -inf is null."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any

import orjson

from shortlist.bundle.class_sets import parse_set_names
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names, resolve_names
from shortlist.core.arrays import FLOAT64_CODE, parse_float_rows, parse_id_rows, parse_numbers
from shortlist.core.bias import Bias, parse_bias
from shortlist.core.checks import cut, is_count, parse_whole_number, show
from shortlist.core.draws.sampling import parse_sampling
from shortlist.core.queries import BeamQuery, BeamStep, SampleQuery, ScoreQuery, Scores, TopKQuery
from shortlist.core.results import DoubleArray, ReadTexts, TopK
from shortlist.core.row_lists import Lists, NamedLists
from shortlist.decoding.arguments import make_beam_query
from shortlist.errors import BadInput
from shortlist.server.messages.headers import CONTENT_TYPE, EncodedResponse, make_length_header
from shortlist.server.messages.json_fields import parse_json, read_flag, refuse_draw_scores
from shortlist.server.messages.json_pieces import make_json_list
from shortlist.wire.open_inference import JSON_TYPE

from .named_lists import ListRegistry
from .promises import read_promise

TARGET_FIELDS = ("model", "version")
SET_FIELDS = ("within", "without")
LIMIT_FIELDS = ("timeout", "priority")
TOPK_FIELDS = (
    *TARGET_FIELDS,
    "contexts",
    "k",
    "allow",
    "ban",
    *SET_FIELDS,
    "bias",
    "exact",
    "labels",
    "risk",
    "scores",
    "names",
    "sample",
    "partial",
    *LIMIT_FIELDS,
)
STEP_FIELDS = (
    *("scores", "finished", "beam", "n", "eos", "allow", "ban", "bias", "forced"),
    *("min_length", "lengths", "temperature", "exact"),
)
BEAM_FIELDS = (*TARGET_FIELDS, "contexts", *STEP_FIELDS, *LIMIT_FIELDS)
SAMPLE_FIELDS = ("seed", "position", "temperature", "draws", "top_p")
SCORE_FIELDS = (*TARGET_FIELDS, "contexts", "ids", "exact", *LIMIT_FIELDS)
NUMBERS = (int, float)
COVERAGE_DIGITS = 6
JSON_CONTENT = (CONTENT_TYPE, JSON_TYPE.encode())


def parse_fields(body: memoryview | bytes, names: tuple[str, ...]) -> dict[str, Any]:
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
        raise BadInput(
            f"version is {show(version)}: send a whole number, or leave it out for `stable` where it is declared, else "
            "the latest that is ready"
        )
    return name, version


def read_topk_query(fields: dict[str, Any], dim: int, registry: ListRegistry) -> TopKQuery:
    """The query of /v1/topk to a model of `dim` numbers a context vector; raises BadInput, NotFound."""
    contexts = parse_float_rows("contexts", require_field(fields, "contexts"), dim)
    return TopKQuery(
        contexts,
        parse_whole_number("k", require_field(fields, "k")),
        read_lists(fields, "allow", registry),
        read_lists(fields, "ban", registry),
        read_flag(fields, "exact"),
        read_bias(fields, len(contexts)),
        read_flag(fields, "partial"),
        *(fields.get(name) and parse_set_names(name, fields[name]) for name in SET_FIELDS),
    )


def read_sample_query(fields: dict[str, Any], dim: int, registry: ListRegistry) -> SampleQuery:
    """The query of /v1/topk with `sample`; where there is a k, draws are from the k best. Raises BadInput, NotFound."""
    sample, named = fields["sample"], next((name for name in SET_FIELDS if name in fields), None)
    if named is not None:
        raise BadInput(f"{named} is of requests without 'sample': send the set's ids as allow or ban")
    if not isinstance(sample, dict) or not sample.keys() <= set(SAMPLE_FIELDS) or sample.get("seed") is None:
        raise BadInput(f"sample must be an object with a seed, and none but {', '.join(SAMPLE_FIELDS)}")
    refuse_draw_scores(fields)
    if read_flag(fields, "partial"):
        raise BadInput("partial is of requests without 'sample': draws are of all shards, so leave it out")
    contexts = parse_float_rows("contexts", require_field(fields, "contexts"), dim)
    options = {name: value for name, value in sample.items() if value is not None}
    sampling = parse_sampling(len(contexts), **options, top_k=fields.get("k"), k_name="k")
    allow, ban = (read_lists(fields, name, registry) for name in ("allow", "ban"))
    return SampleQuery(contexts, sampling, allow, ban, read_bias(fields, len(contexts)))


def read_beam_query(fields: dict[str, Any], dim: int, registry: ListRegistry) -> BeamQuery:
    """The query of /v1/beam/step to a model of `dim` numbers a context vector; raises BadInput, NotFound."""
    contexts = parse_float_rows("contexts", require_field(fields, "contexts"), dim)
    scores, beam = read_scores(fields), require_field(fields, "beam")
    options = {name: fields[name] for name in STEP_FIELDS[3:] if name in fields}
    lists = {name: read_lists(fields, name, registry) for name in ("allow", "ban")}
    checked = lists | {"bias": read_bias(fields, len(contexts)), "exact": read_flag(fields, "exact")}
    if "forced" in fields:
        checked["forced"] = parse_id_rows("forced", fields["forced"])
    return make_beam_query(contexts, scores, fields.get("finished"), beam=beam, **options | checked)


def read_scores(fields: dict[str, Any]) -> DoubleArray:
    """The scores of beams, null for a beam that is not there; raises BadInput."""
    scores = require_field(fields, "scores")
    if not isinstance(scores, list):
        raise BadInput("scores must be a list of numbers")
    numbers: DoubleArray = parse_numbers("scores", [-inf if score is None else score for score in scores], FLOAT64_CODE)
    return numbers


def read_lists(fields: dict[str, Any], name: str, registry: ListRegistry) -> Lists | None:
    """An optional list of ids, flat or one a row; or the registered lists that an object names, with numbers a row."""
    value = fields.get(name)
    if not isinstance(value, dict):
        return None if value is None else parse_id_rows(name, value)
    table, rows = value.get("list"), value.get("rows")
    if not isinstance(table, str) or not value.keys() <= {"list", "rows"}:
        raise BadInput(f"{name} must be lists of ids, or an object of the name of registered ones, 'list', and 'rows'")
    return registry.resolve(NamedLists(table, None if rows is None else parse_id_rows(f"rows of {name}", rows)))


def read_bias(fields: dict[str, Any], rows: int) -> Bias | None:
    """An optional bias: an object of ids and weights for all `rows`, or a list of one each; raises BadInput."""
    return parse_bias(fields.get("bias"), rows)


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
    if not isinstance(timeout, NUMBERS) or isinstance(timeout, bool) or not timeout >= 0:
        raise BadInput(f"timeout is {show(timeout)}: send seconds, from 0")
    if not is_count(priority):
        raise BadInput(f"priority is {show(priority)}: send a whole number from 0")
    return float(timeout), priority


def read_more(fields: dict[str, Any]) -> list[str]:
    """What a request wants beside what all responses have; raises BadInput."""
    return [name for name in ("risk", "scores", "partial") if read_flag(fields, name)]


def resolve_fields(fields: dict[str, Any], names: Names | None, model: str) -> dict[str, Any]:
    """The fields with ids in place of the names in lists of ids; raises BadInput."""
    present = {name: fields[name] for name in ("allow", "ban", "ids") if name in fields}
    return fields | {
        name: resolve_names(name, value, names, model, unknown=name == "ban", in_place=name == "ids")
        for name, value in present.items()
    }


def encode_topk(
    manifest: Manifest, texts: Mapping[str, ReadTexts], more: Collection[str], top: TopK
) -> EncodedResponse:
    """The response of /v1/topk.

    texts: what reads the texts of ids, None of -1, by the field that they are wanted in, `labels` or `names`. more:
    what else is wanted, `risk` and `scores`; with `partial` the `coverage`.
    """
    content: dict[str, Any] = {
        "model": manifest.name,
        "version": manifest.version,
        "ids": make_json_list(top.ids),
        "logprobs": make_json_list(top.logprobs),
        "scored": top.scored,
        "normalizer": top.normalizer,
        **read_promise(manifest, top.normalizer, top.ids.shape[1]),
    }
    for name, read in texts.items():
        content[name] = make_json_list(top.ids, lambda ids, read=read: read(ids).tolist())  # type: ignore[misc]
    if "risk" in more:
        content["risk"] = top.complete_risk(manifest.classes)
    if "scores" in more and top.scores is not None:
        content["scores"] = make_json_list(top.scores)
    if "partial" in more:
        content["coverage"] = round(top.coverage, COVERAGE_DIGITS)
    return encode_json(content)


def encode_beam_step(manifest: Manifest, step: BeamStep) -> EncodedResponse:
    """The response of /v1/beam/step."""
    return encode_json(
        {
            "model": manifest.name,
            "version": manifest.version,
            "parents": step.parents,
            "ids": step.ids,
            "scores": step.scores,
            "logprobs": step.logprobs,
            "normalizer": step.normalizer,
            **read_promise(manifest, step.normalizer, step.ids.shape[1]),
        }
    )


def encode_scores(manifest: Manifest, scores: Scores) -> EncodedResponse:
    """The response to a request to /v1/score; -inf is null."""
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
