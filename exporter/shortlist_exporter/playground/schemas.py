"""What the page asks, and what it is told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MAX_TEXT_CHARS = 100_000
MAX_ROWS = 20  # vectors that are pasted
MAX_K = 100
MAX_WORDS = 4_096  # that follow the text


class Question(BaseModel):
    """A prompt or context vectors, and how the head is asked about them.

    text, words: a prompt, and the classes that follow it. contexts: [B, d], in the place of both. allow, ban: classes,
    by number or by label.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    version: int | None = None
    text: str | None = Field(None, max_length=MAX_TEXT_CHARS)
    words: list[int] = Field([], max_length=MAX_WORDS)
    contexts: list[list[float]] | None = Field(None, min_length=1, max_length=MAX_ROWS)
    k: int = Field(10, ge=1, le=MAX_K)
    exact: bool = False
    allow: list[str] = []
    ban: list[str] = []


class Candidate(BaseModel):
    """One of the k best classes. label: None where the class has none.

    place: from 1, of the class among the k best of the other side; None where it is not there.
    """

    id: int
    label: str | None
    probability: float | None
    place: int | None


class Side(BaseModel):
    """The k best classes of a context vector by the head or by the dense layer, and how many classes were scored."""

    candidates: list[Candidate]
    scored: int
    risk: float | None


class Row(BaseModel):
    """One context vector. dense: None where the head has no dense layer. agrees: whether both have the same best."""

    head: Side
    dense: Side | None
    agrees: bool


class Times(BaseModel):
    """Microseconds of the head and the dense layer for all rows, medians of a few calls; of the body, for the text."""

    head: float
    dense: float | None
    body: float | None


class Answer(BaseModel):
    """What the page shows. ends: the classes that end a text."""

    model: str
    version: int
    classes: int
    rows: list[Row]
    times: Times
    normalizer: str
    promise: float | None
    ends: list[int]


class HeadCard(BaseModel):
    """A head that may be asked. reads: whether the body goes before it. dense: what stands on the other side."""

    name: str
    version: int
    method: str
    classes: int
    dim: int
    max_k: int
    promise: float | None
    reads: bool
    dense: str | None


class Overview(BaseModel):
    """All heads that are ready, the model that reads text, and why some head is not ready."""

    heads: list[HeadCard]
    body: str | None
    waits: str | None


class Snippets(BaseModel):
    """Commands that ask the same once more."""

    curl: str
    python: str


class Vectors(BaseModel):
    """Context vectors [B, d] as text to paste."""

    text: str
    rows: int
