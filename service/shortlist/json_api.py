"""`/v1` bodies: JSON in, arrays, JSON out. -inf is null."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .codec import DEFAULT_K, load_object, numbers
from .errors import BadInput
from .head import Head
from .protocol import Array
from .result import NO_CLASS, FloatArray, TopK

Ids = list[int] | list[list[int]] | None


class Options(BaseModel):
    """What both requests share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field(description="name of the model")
    version: int | None = Field(None, description="its version; the latest by default")
    exact: bool = Field(False, description="answer with the dense head")


class TopKOptions(Options):
    """`/v1/topk` without the contexts."""

    k: int | None = Field(None, description=f"classes wanted, 1 to max_k; {DEFAULT_K} by default")
    allow: Ids = Field(None, description="legal class ids, one list for all rows or one a row")
    ban: Ids = Field(None, description="illegal class ids, one list for all rows or one a row")
    labels: bool = Field(False, description="also return the classes' printable names")


class TopKBody(TopKOptions):
    """The k best classes of each context vector."""

    contexts: list[list[float]] = Field(description="context vectors [B, d]")


class ScoreBody(Options):
    """Log-probabilities of given classes."""

    contexts: list[list[float]] = Field(description="context vectors [B, d]")
    ids: list[list[int]] = Field(description="class ids [B, m]")


O = TypeVar("O", bound=Options)


def parse(body: bytes, kind: type[O], arrays: tuple[str, ...]) -> tuple[O, dict[str, Any]]:
    """The options, validated, and the raw arrays taken out before: no validator walks over floats."""
    content = load_object(body)
    raw = {name: content.pop(name, None) for name in arrays}
    for name, values in raw.items():
        if not isinstance(values, list):
            raise BadInput(f"{name} is missing or no list: give a list of rows")
    try:
        return kind.model_validate(content), raw
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"field '{where}' is wrong: {first['msg']}") from None


def contexts_of(values: list[Any], head: Head) -> Array:
    """[B, d] float32; no rows at all are legal."""
    return numbers("contexts", values, "<f4") if values else np.empty((0, head.manifest.dim), np.float32)


def padded(lists: Ids) -> Array | None:
    """Allow or ban as one array; rows of different lengths are filled up with -1."""
    if lists is None:
        return None
    if not lists or not isinstance(lists[0], list):
        return numbers("allow or ban", lists, "<i8")
    width = max(len(row) for row in lists if isinstance(row, list))
    filled = np.full((len(lists), width), NO_CLASS, np.int64)
    for row, own in zip(filled, lists, strict=True):
        if isinstance(own, list):
            row[: len(own)] = own
    return filled


def encode_topk(head: Head, top: TopK, *, labels: bool) -> bytes:
    """The answer to `/v1/topk`."""
    manifest = head.manifest
    content: dict[str, Any] = {
        "model": manifest.name,
        "version": manifest.version,
        "ids": np.ascontiguousarray(top.ids),
        "logprobs": np.ascontiguousarray(top.logprobs),
        "scored": top.scored,
        "normalizer": top.normalizer,
    }
    if labels:
        content["labels"] = labelled(head, top)
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def labelled(head: Head, top: TopK) -> list[list[str | None]]:
    """Printable names beside the ids; raises BadInput where the bundle has none."""
    names = head.labels
    if names is None:
        raise BadInput(f"{head.manifest.name} was exported without labels: leave labels out")
    return [[None if i == NO_CLASS else names[i] for i in row] for row in top.ids.tolist()]


def encode_scores(head: Head, logprobs: FloatArray, normalizer: str) -> bytes:
    """The answer to `/v1/score`."""
    manifest = head.manifest
    content = {
        "model": manifest.name,
        "version": manifest.version,
        "logprobs": np.ascontiguousarray(logprobs),
        "normalizer": normalizer,
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
