"""The JSON bodies of requests to /v1. In all of them null says what leaving the field out does."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

IdRow = list[int]
Ids = list[int] | list[list[int]] | list[str] | list[list[str]]


class NamedLists(BaseModel):
    """Lists that were registered at /v1/lists."""

    model_config = ConfigDict(extra="forbid")

    list: str = Field(description="the name that they were registered by")
    rows: IdRow | None = Field(default=None, description="which of them each row has, -1 for none; row i has list i")


Lists = Ids | NamedLists
Bias = dict[str, float] | list[dict[str, float]]


class Request(BaseModel):
    """The fields that every request of /v1 has."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="name of the model", examples=["lm"])
    version: int | None = Field(default=None, description="`stable` where that is declared, else the latest ready one")
    contexts: list[list[float]] = Field(description="B context vectors of d numbers")
    exact: bool | None = Field(default=False, description="the dense head's answer, proved by bounds or computed by it")
    timeout: float | None = Field(default=None, ge=0, description="seconds after which the answer is 504 instead")
    priority: int | None = Field(default=None, ge=0, description="lower goes first; 0 by default")


class Sample(BaseModel):
    """Draws from the softmax by noise that is a function of seed, position and class."""

    model_config = ConfigDict(extra="forbid")

    seed: int | list[int] = Field(description="from 0, for all rows or one a row")
    position: int | list[int] | None = Field(
        default=0, description="from 0, for all rows or one a row: the token's place"
    )
    temperature: float | list[float] | None = Field(default=1.0, description="0.01 to 100, divides the logits")
    draws: int | None = Field(default=1, ge=1, description="independent draws of each row")
    top_p: float | None = Field(default=None, gt=0, le=1, description="from the fewest best classes so probable")


class TopKRequest(Request):
    """The k classes that score highest; with `sample` draws, from all classes or from the k best."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["k"]}, {"required": ["sample"]}]})

    k: int | None = Field(default=None, ge=1, description="at most max_k; may lack with `sample`", examples=[5])
    sample: Sample | None = Field(default=None, description="draw classes in place of ranking them")
    partial: bool | None = Field(default=False, description="answer without shards that are lost")
    allow: Lists | None = Field(default=None, description="only these ids, for all rows or one list a row; -1 pads")
    ban: Lists | None = Field(default=None, description="none of these ids, for all rows or one list a row; -1 pads")
    bias: Bias | None = Field(default=None, description="weights by id, for all rows or one a row, added to the logits")
    within: str | list[str] | None = Field(default=None, description="names of sets: only classes in all of them")
    without: str | list[str] | None = Field(default=None, description="names of sets: only classes in none of them")
    labels: bool | None = Field(default=False, description="also answer the printable labels of the ids")
    risk: bool | None = Field(
        default=False, description="also answer how likely each row misses some of the best classes"
    )
    names: bool | None = Field(default=False, description="also answer the names of the ids")
    scores: bool | None = Field(
        default=False, description="also answer the scores that log-probabilities are normalised from"
    )


class BeamRequest(Request):
    """One step of a beam search over G groups of `beam` rows."""

    scores: list[float | None] = Field(description="[G * beam], of the beams so far; null where there is no beam")
    finished: list[bool] | None = Field(default=None, description="[G * beam]; a finished beam comes back as id -1")
    beam: int = Field(ge=1, description="rows in a group", examples=[5])
    n: int | None = Field(default=None, ge=1, description="continuations; max(2, 1 + number of eos) * beam by default")
    eos: int | list[int] | None = Field(default=[], description="ids that end a sequence")
    allow: Lists | None = Field(default=None, description="only these ids, for all rows or one list a row; -1 pads")
    ban: Lists | None = Field(default=None, description="none of these ids, for all rows or one list a row; -1 pads")
    bias: Bias | None = Field(default=None, description="weights by id, for all rows or one object a row")
    forced: list[int] | None = Field(default=None, description="[G * beam], the id that must follow; -1: a free row")
    min_length: int | None = Field(default=0, description="rows that have fewer tokens do not end")
    lengths: int | list[int] | None = Field(default=None, description="tokens that all rows have, or each")
    temperature: float | list[float] | None = Field(
        default=1.0, description="0.01 to 100, divides log-probabilities and biases"
    )


class ScoreRequest(Request):
    """The log-probabilities of given classes."""

    ids: Ids = Field(description="ids for all rows or one list a row; -1 pads")


class ListTable(BaseModel):
    """Lists of ids to be registered. As binary data: tensors `ids` and `offsets` in the format of /v2."""

    lists: list[list[int]]


class RecallRequest(BaseModel):
    """Contexts to measure a model on. As binary data: the tensor `context` in the format of /v2."""

    contexts: list[list[float]] = Field(description="n context vectors of d numbers")
