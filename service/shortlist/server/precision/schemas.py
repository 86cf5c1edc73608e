"""What `/v1/models` shows of served precision, for /docs."""

from __future__ import annotations

from pydantic import BaseModel, Field

from shortlist.evaluation.statistics import Share


class DepthPrecision(BaseModel):
    """Of the k best classes of live rows that were asked again exactly, while this head is in use."""

    promise: float | None = Field(description="P@k that the alarm is held to")
    precision: Share = Field(description="P@k of the last rows; its interval holds at all times")
    rows: int = Field(description="how many rows that is of")
    trials: int = Field(description="rows so far")
    hits: float = Field(description="sum over them of the share of the k best that was answered")
    lost_probability: float = Field(description="mean over them of the exact probability of what was not")
    alarm: bool = Field(description="whether P@k is under the promise")
    alarms: int = Field(description="how often the alarm was raised")
    evidence: float | None = Field(description="from 0 to 1, at which it is raised")


class ServedPrecision(BaseModel):
    """How precise answers to live rows were."""

    rows: int = Field(description="rows asked again so far")
    share: float = Field(description="of all rows that could be")
    alarm: bool
    exact_answers: bool = Field(description="whether exact answers are given for the alarm")
    promise_in_force: float | None = Field(description="that answers are searched by; null where the head has none")
    logprob_error_mean: float = Field(description="mean |error| of log-probabilities, nats")
    logprob_error_max: float
    at: dict[str, DepthPrecision] = Field(description="by k")
