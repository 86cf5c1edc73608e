"""`manifest.json`: what a bundle holds. Nothing is read back from a file's name."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from shortlist.core.checks import cut
from shortlist.core.results import PROVED_NORMALIZERS
from shortlist.errors import BundleError

from .list_costs import ListCosts
from .settings import (
    EXACT_PLANS,
    MAX_CLASSES,
    MAX_EFFORT_K,
    MAX_NATS,
    SELF_REFERENCE_PLANS,
    SETTINGS,
    GroupedSettings,
    PlanSettings,
    describe_error,
)

FORMAT_VERSION = 4
MANIFEST_FILE = "manifest.json"

Normalizer = Literal["exact", "bounded", "estimated", "shortlist"]


def check_file_name(name: str) -> str:
    """`name` itself; raises ValueError unless it is a path below the bundle's folder."""
    if not FILE_PATTERN.fullmatch(name) or not {".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"'{cut(name)}' is no file below the bundle's folder")
    return name


FILE_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,200}(/[A-Za-z0-9._-]{1,200}){0,9}")
MODEL_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}"  # a pattern
FileName = Annotated[str, AfterValidator(check_file_name)]
Whole = Annotated[int, Field(ge=1, le=MAX_CLASSES)]


class Strict(BaseModel):
    """A record that refuses unknown fields and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(Strict):
    """One file of the bundle: size in bytes and SHA-256 in hexadecimal."""

    size: int
    sha256: str


class RawArray(Strict):
    """An array that is mapped from a file without a header: numbers row by row, little-endian."""

    file: FileName = Field(description="path below the bundle's folder; graphs and other roles may share it")
    dtype: Literal["float32", "int8", "uint8", "int64", "uint64"]
    shape: tuple[Whole, ...] = Field(min_length=1, max_length=4)

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def describe(cls, file: str, array: npt.NDArray[Any]) -> RawArray:
        """`array` [...] as it lies in `file`."""
        return cls.model_validate({"file": file, "dtype": array.dtype.name, "shape": array.shape})


class TargetFigures(Strict):
    """How a softmax does on the held-out gold classes."""

    top_1: float = Field(description="share of targets that are the best class; the same for 5 and 10")
    top_5: float
    top_10: float
    perplexity: float | None = Field(
        description="over the targets that have a probability over 0; None: too large for a number"
    )
    impossible: float = Field(
        description="share of targets with probability 0: with any, the perplexity of all is infinite"
    )


class TargetQuality(Strict):
    """Figures on targets: of the head, of the dense softmax that it was made from, and of that softmax retrained."""

    rows: int
    head: TargetFigures
    dense: TargetFigures
    retrained: TargetFigures | None = None


class KindQuality(Strict):
    """Figures on the held-out contexts of one kind of text."""

    rows: int
    p_at_1: float
    p_at_5: float


class Quality(Strict):
    """Figures on held-out contexts, against the reference."""

    rows: int = Field(description="held-out contexts measured")
    p_at_1: float = Field(description="P@1 of requests for one class; P@5 and P@10 of requests for so many")
    p_at_5: float
    p_at_10: float
    p_at: dict[int, float] = Field(
        default_factory=dict,
        description="the same by k, of every k that the export was asked for",
    )
    logprob_error_mean: float = Field(description="mean |error| of the returned log-probabilities, nats")
    logprob_error_p99: float = Field(description="99th percentile of the same, nats")
    logprob_error_hits_mean: float | None = Field(
        default=None, description="the mean over the rows whose best class was found; None: no row, or not measured"
    )
    logprob_error_hits_p99: float | None = Field(default=None, description="99th percentile of these rows, nats")
    cost_macs: float = Field(description="multiply-adds per query relative to dense")
    cost_bytes: float = Field(description="bytes of weights touched per query relative to dense")
    targets: TargetQuality | None = Field(default=None, description="of a head that is its own reference")
    kinds: dict[str, KindQuality] = Field(
        default_factory=dict, description="by kind of text, as the contexts file names them: elsewhere nothing is known"
    )

    def figures(self) -> dict[str, float]:
        """Every number that was measured by name; those on targets as `head_top_1`, `dense_perplexity`, ..."""
        by_softmax = {} if self.targets is None else self.targets.model_dump(exclude={"rows"}, exclude_none=True)
        on_targets = {f"{whose}_{name}": value for whose, part in by_softmax.items() for name, value in part.items()}
        asked = {f"asked_p_at_{k}": share for k, share in self.p_at.items()}
        return self.model_dump(exclude={"targets", "p_at", "kinds"}, exclude_none=True) | asked | on_targets


class Certificate(Strict):
    """What certified answers to exact requests promise, and when dense answers them instead."""

    logprob_bound: float = Field(
        ge=0, le=MAX_NATS, description="no log-probability is off by more nats; a row that could be goes to dense"
    )
    rows: int = Field(description="held-out contexts measured")
    rescored: float = Field(description="classes scored exactly for a context, mean of those not answered by dense")
    dense_share: float = Field(description="share of them that dense answered, the bounds being too wide")
    dense_crossover: Whole | None = Field(
        default=None, description="an exact request of so many rows or more is answered by dense.onnx; None: never"
    )


class Manifest(Strict):
    """The whole manifest; shapes and units as in the field descriptions."""

    format: int = FORMAT_VERSION
    name: str = Field(pattern=f"^{MODEL_NAME}$", description="of the model at the export; errors of a head say it")
    version: int = Field(ge=1)
    method: str
    plan: str = Field(description="the shape of the computation: a name of `SETTINGS`")
    exact_plan: str | None = Field(
        default=None, description="the plan that proves exact answers, on the CPU; None: the exact head itself answers"
    )
    reference: Literal["dense", "self"]
    classes: Whole = Field(description="V, rows of the weight, padding included")
    dim: Whole = Field(description="d, length of a context vector")
    dtype: str = Field(description="of the weights as they were given")
    max_k: Whole
    graphs: dict[str, FileName] = Field(description="role -> file of the ONNX graph")
    arrays: dict[str, RawArray] = Field(default={}, description="role -> raw array that compiled loops read")
    settings: SerializeAsAny[PlanSettings] = Field(
        default_factory=dict, validate_default=True, description="how the plan searches, typed by `plan`"
    )
    fit: dict[str, Any] = Field(default={}, description="how the head was made: what the method was given and learnt")
    seed: int = 0
    normalizer: Normalizer
    logit_scale: float = Field(default=1.0, gt=0, le=MAX_NATS)
    soft_cap: float | None = Field(default=None, gt=0, le=MAX_NATS)
    dense_crossover: Whole | None = Field(
        default=None, description="a request of so many rows or more is answered by dense.onnx; None: never"
    )
    list_costs: ListCosts | None = Field(default=None, description="of the ways to answer rows with lists; None: guess")
    fallback: bool = Field(default=True, description="whether a crossover is measured on other devices than the CPU")
    certificate: Certificate | None = None
    quality: Quality | None = None
    provenance: dict[str, Any] = {}
    files: dict[FileName, FileEntry] = {}
    digest: str = ""

    @field_validator("settings", mode="before")
    @classmethod
    def parse_settings(cls, value: Any, info: ValidationInfo) -> PlanSettings:
        """`value` as the settings of the manifest's plan; raises ValueError."""
        plan = info.data.get("plan", "")
        kind = SETTINGS.get(plan)
        if kind is None:
            raise ValueError(f"plan '{plan}' is not known")
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            raise ValueError(describe_error(error)) from None

    @model_validator(mode="after")
    def check_consistency(self) -> Self:
        """Raise ValueError where fields contradict each other."""
        if self.max_k > self.classes:
            raise ValueError(f"max_k={self.max_k} is over classes={self.classes}")
        if self.reference == "self" and self.plan not in SELF_REFERENCE_PLANS:
            raise ValueError(f"plan {self.plan} has no distribution of its own")
        has_layer = self.plan == "mixture" if self.reference == "self" else "dense" in self.graphs
        if self.exact_plan is not None and not has_layer:
            raise ValueError("an exact plan needs the dense layer, of which its proofs are, or plan mixture")
        return self

    @property
    def promise(self) -> float | None:
        """The mean P@k that rows are searched on for; None where the plan makes no such promise."""
        settings = self.settings  # an attribute that pydantic lacks takes microseconds
        return settings.stated_promise if isinstance(settings, GroupedSettings) else None

    def find_promise(self, normalizer: str, k: int) -> float | None:
        """The promise that an answer of k classes was searched by; None where they are proved, or too many for one."""
        return None if normalizer in PROVED_NORMALIZERS or k > MAX_EFFORT_K else self.promise

    def with_digest(self) -> Manifest:
        """This manifest with its digest filled in."""
        return self.model_copy(update={"digest": compute_digest(self.model_dump(mode="json"))})


def compute_digest(content: dict[str, Any]) -> str:
    """SHA-256 of the manifest's canonical JSON without its `digest`."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the bundle at `folder`.

    Raises BundleError when it is missing, unreadable, edited, of another format, or of a plan that is not known.
    """
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a bundle: it has no {MANIFEST_FILE}") from None
    except PermissionError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror}): give this user access to the bundle") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read ({type(error).__name__}): export the bundle again") from error
    check_format(path, content)
    if content.get("digest") != compute_digest(content):
        raise BundleError(f"{path} was edited after the export: its digest differs; export the bundle again")
    check_plan(folder, "plan", content.get("plan"), SETTINGS)
    if content.get("exact_plan") is not None:
        check_plan(folder, "exact plan", content["exact_plan"], EXACT_PLANS)
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = cut(".".join(str(part) for part in first["loc"]) or "its fields together")
        raise BundleError(
            f"{path} is not a valid manifest at '{where}' ({first['msg']}): "
            "upgrade shortlist if a newer one made the bundle, else export the bundle again"
        ) from error


def check_format(path: Path, content: Any) -> None:
    """Refuse what is not a manifest, or one of a format that this Shortlist does not read."""
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise BundleError(f"{path} is not a manifest: it has no format number; export the bundle again")
    formats = f"{path} has format {content['format']} and this Shortlist reads {FORMAT_VERSION}"
    if content["format"] > FORMAT_VERSION:
        raise BundleError(f"{formats}: upgrade shortlist")
    if content["format"] < FORMAT_VERSION:
        raise BundleError(f"{formats}: export the bundle again")


def check_plan(folder: Path, role: str, plan: Any, plans: Collection[str]) -> None:
    """Raise BundleError for a plan that is none of `plans`, which this version knows, since a newer one wrote it."""
    if not isinstance(plan, str) or plan not in plans:
        raise BundleError(f"{folder} needs {role} '{cut(plan)}', known here: {', '.join(plans)}; upgrade shortlist")
