"""Settings of each plan: what a manifest says of how its head searches, checked when it is read.

Some may be changed on an open head by `Head.with_settings`; the others describe its files.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shortlist.core.checks import cut
from shortlist.errors import BadInput

PREVIEWED_DIVISOR = 2  # plan `grouped` previews at least so small a share of the classes that it opens by all columns
MAX_BLOCK_CLASSES = 16  # of one block of plan `grouped`: as many as its loops score side by side
MAX_CLASSES = 2**31 - 1  # of any number of classes: loops count them in 32 bits
LOOKS = 3  # that a search of plan `grouped` takes at most
LIST_LOOKS = 2  # the same of rows with lists
MAX_EFFORT_K = 256  # beyond it, every row takes the second look alone, and nothing is estimated
DEEP_BANS = 150  # in front of a row's best, over which it is answered exactly where nothing was timed
MOST_OPENED_PER_DEPTH = 1_000  # enough for every layer that was tried: docs/log/lists.md
EFFORT_WEIGHTS = 15  # of each look: one for every feature, and a constant
MAX_NATS = 3.4e38  # of any setting that is a logit, or added to one: float32 can hold it

Count = Annotated[int, Field(ge=1, le=MAX_CLASSES)]
CountOrNone = Annotated[int, Field(ge=0, le=MAX_CLASSES)]
Nats = Annotated[float, Field(ge=-MAX_NATS, le=MAX_NATS)]
Size = Annotated[float, Field(gt=0, le=MAX_NATS)]
Promise = Annotated[float, Field(gt=0, lt=1)]
Weights = tuple[Nats, ...]
Margin = Annotated[float, Field(ge=0, le=MAX_NATS)]


class PlanSettings(BaseModel):
    """What every plan's settings have in common: they never change, unknown names and wrong values are refused.

    adjustable: the names that `with_changes` takes. of_previews: those of them that say how previews are used, so that
    they have no effect on a head without. Numbers and booleans may be numpy's; strings are never parsed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    adjustable: ClassVar[tuple[str, ...]] = ()
    of_previews: ClassVar[tuple[str, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def convert_numpy(cls, value: Any) -> Any:
        """A scalar of numpy as Python's own; anything else as it is."""
        return value.item() if isinstance(value, np.generic) else value

    def with_changes(self, changes: Mapping[str, Any]) -> Self:
        """These settings but for `changes`, name -> value; raises BadInput naming the one that is wrong."""
        for name in changes:
            if name not in self.adjustable:
                raise BadInput(f"there is no setting '{name}' to change: {self.describe_choice()}")
        try:
            return self.model_validate(self.model_dump() | dict(changes))
        except ValidationError as error:
            raise BadInput(f"setting {describe_error(error)}") from None

    def check_at_least(self, larger: str, smaller: str, advice: str) -> None:
        """Raise ValueError where the setting named `larger` is under the one named `smaller`."""
        most, least = getattr(self, larger), getattr(self, smaller)
        if most < least:
            raise ValueError(f"{larger}={most} is under {smaller}={least}: {advice}")

    def check_previews(self, names: Collection[str], *, has_previews: bool) -> None:
        """Raise BadInput where one of the settings with these `names` is of previews that a head does not have."""
        idle = [name for name in self.of_previews if name in names]
        if idle and not has_previews:
            raise BadInput(f"setting '{idle[0]}' would change nothing: this head has no previews")

    def describe_choice(self) -> str:
        """What may be changed, as the end of a sentence."""
        return f"choose from {', '.join(self.adjustable)}" if self.adjustable else "this head has none"


class FullSettings(PlanSettings):
    """Plan `full` scores every class: there is nothing to set."""


class PreviewSettings(PlanSettings):
    """Plan `preview`: a cheap pass over all classes, of which the best are scored exactly."""

    adjustable: ClassVar[tuple[str, ...]] = ("full_view",)

    full_view: Count = Field(description="N: classes of the best previews that are scored exactly for each row")
    tail_shift: Nats = Field(description="nats added to the previews of the other classes in the normaliser")
    tail_size: Size | None = Field(
        default=None,
        description="squared length of a context from which all of `tail_shift` is added, shorter: a share",
    )


class ScreenSettings(PlanSettings):
    """Plan `screen`. A margin is the difference of the two best clusters' scores over the size of the best."""

    adjustable: ClassVar[tuple[str, ...]] = ("probes", "probe_margin", "dense_margin", "full_view", "dense_tail")
    of_previews: ClassVar[tuple[str, ...]] = ("full_view",)

    probes: Count = Field(description="clusters that a row opens; a class in several of them is scored once")
    probe_margin: Margin = Field(description="rows of a smaller margin open one cluster more")
    dense_margin: Margin = Field(description="rows of a smaller margin go to dense, where the bundle has it")
    second_stage: bool = Field(description="the clusters' graphs give previews, the best of which are scored exactly")
    full_view: CountOrNone = Field(description="classes that the second stage scores exactly; 0 without one")
    tail_limit: Nats | None = Field(
        default=None, description="nats that the rest by terms may be over a row's sets; no number: there are no terms"
    )
    dense_tail: Nats | None = Field(
        default=None, description="rows whose rest by terms is more nats over their sets go to dense"
    )

    @model_validator(mode="after")
    def check_terms(self) -> Self:
        """Raise ValueError for terms without a second stage, and for a limit of the rest without terms."""
        if self.tail_limit is not None and not self.second_stage:
            raise ValueError(f"tail_limit={self.tail_limit:g} is of heads with a second stage: leave it out")
        if self.dense_tail is not None and self.tail_limit is None:
            raise ValueError(f"dense_tail={self.dense_tail:g} is of heads with terms of the tail: leave it out")
        return self


class GatedSettings(PlanSettings):
    """Plan `gated`: a gate picks one expert for each row, whose classes alone are scored."""

    adjustable: ClassVar[tuple[str, ...]] = ("full_view", "previews")
    of_previews: ClassVar[tuple[str, ...]] = ("full_view", "previews")

    full_view: CountOrNone = Field(description="classes of a previewed expert scored exactly; 0 without previews")
    previews: bool = Field(default=True, description="large experts are previewed where there are graphs for it")


class CascadeSettings(PlanSettings):
    """Plan `cascade`: previews of common classes, for some rows of rare ones; the best by int8 rows, then exactly."""

    adjustable: ClassVar[tuple[str, ...]] = ("candidates", "full_view", "margin")

    candidates: Count = Field(description="about how many classes of a row are scored by their int8 rows")
    full_view: Count = Field(description="of those, how many are scored exactly")
    margin: Nats = Field(description="rows whose fifth best preview is under the reach plus this open rare classes")
    common: Count = Field(description="classes that are not rare: the first of index.safetensors' `order`")
    stride: Count = Field(description="every how many-th preview is looked at for the threshold")
    tail_limit: Nats = Field(description="nats that the log of the rest's sum of exp may be over the candidates'")

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Raise ValueError where a stage would pass on fewer classes than the next one takes."""
        self.check_at_least("candidates", "full_view", "choose more candidates")
        return self


class GroupedSettings(PlanSettings):
    """Plan `grouped`: each stage hands its best classes on, from groups to previews, int8 rows and exact scores.

    The counts are those of a row's first look; further ones, which `promise` and lists ask for, go further by factors
    of their own (`kernels.grouped.effort`).
    """

    adjustable: ClassVar[tuple[str, ...]] = ("opened", "previewed", "candidates", "full_view", "promise")
    fitted: ClassVar[tuple[str, ...]] = ("opened", "candidates", "full_view")  # counts whose misses efforts estimate

    opened: Count = Field(description="classes in the groups that are opened, previewed by some columns; N at least")
    previewed: Count = Field(description="of those, classes previewed by all columns; half of them at least")
    candidates: Count = Field(description="of those, how many are scored by their int8 rows")
    full_view: Count = Field(description="of those, how many are scored exactly")
    tail_limit: Nats = Field(description="nats that the log of the rest's sum of exp may be over the candidates'")
    tail_beside: Count | None = Field(
        default=None,
        description="best classes beside which the rest is guessed; all candidates where there is no number",
    )
    promise: Promise | None = Field(
        default=None, description="rows are searched on until the best classes are there so probably; else all alike"
    )
    effort: tuple[Weights, ...] = Field(default=(), description="log-odds of a miss by each look's features")
    wide_effort: tuple[Weights, ...] = Field(default=(), description="the same where many classes are asked for")
    list_effort: Weights = Field(default=(), description="the same of the last look of rows with lists")
    ban_effort: tuple[Weights, ...] = Field(default=(), description="the same where a row's own best are banned")
    wide_ban_effort: tuple[Weights, ...] = Field(default=(), description="the same where many classes are asked for")
    is_narrower: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="looks go less far than `effort` was fitted to: neither promise nor risk is stated",
    )
    opened_per_k: Count = Field(
        default=250, description="classes that a first look opens for each of over ten asked for, if these are more"
    )
    candidates_per_k: Count = Field(default=10, description="candidates that it has more for each of those")
    opened_per_depth: Count = Field(
        default=MOST_OPENED_PER_DEPTH,
        description="classes that a later look opens for each banned class in front of a row's best",
    )
    deep_bans: CountOrNone = Field(
        default=DEEP_BANS,
        description="banned classes in front of a row's best, over which it is answered exactly",
    )
    most_bans: CountOrNone | None = Field(
        default=None,
        description="bans, be they where they will, over which a row is answered exactly; 0: any lists; None: never",
    )

    @field_validator("effort", "wide_effort", "list_effort", "ban_effort", "wide_ban_effort", mode="before")
    @classmethod
    def convert_lists(cls, value: Any) -> Any:
        """Lists, as JSON has them, as tuples."""
        return (
            tuple(tuple(row) if isinstance(row, list) else row for row in value) if isinstance(value, list) else value
        )

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Raise ValueError where a stage would pass on fewer classes than the next one takes."""
        self.check_at_least("previewed", "candidates", "preview more classes")
        self.check_at_least("candidates", "full_view", "choose more candidates")
        return self

    @model_validator(mode="after")
    def check_effort(self) -> Self:
        """Raise ValueError where there is a promise and nothing to keep it by, or weights of another search."""
        looks = self.effort, self.wide_effort, self.ban_effort, self.wide_ban_effort
        rows = [*(row for weights in looks for row in weights), *([self.list_effort] if self.list_effort else [])]
        is_whole = {len(weights) for weights in looks} <= {0, LOOKS}
        if not is_whole or {len(row) for row in rows} - {EFFORT_WEIGHTS}:
            raise ValueError(f"effort is not {LOOKS} rows of {EFFORT_WEIGHTS} numbers: export the head again")
        if self.promise is not None and not self.effort:
            raise ValueError(f"promise={self.promise} has no effort to be kept by: export the head with a promise")
        return self

    def with_changes(self, changes: Mapping[str, Any]) -> Self:
        """As of `PlanSettings`; `is_narrower` stays true of all that is made of narrower settings."""
        other = super().with_changes(changes)
        is_narrower = any(getattr(other, name) < getattr(self, name) for name in self.fitted)
        return other.model_copy(update={"is_narrower": True}) if is_narrower else other

    @property
    def stated_promise(self) -> float | None:
        """The promise that answers name: none of searches that do not go as far as it was fitted to."""
        return None if self.is_narrower else self.promise

    @property
    def classes_opened(self) -> int:
        """How many classes the groups hold that are opened, at least."""
        return max(self.opened, self.candidates)

    @property
    def classes_previewed(self) -> int:
        """How many of the classes that are opened are previewed by all columns, at least."""
        return max(self.previewed, self.opened // PREVIEWED_DIVISOR)


class AdaptiveSettings(PlanSettings):
    """Plan `adaptive`: frequent classes are scored at once, tails of the others only where they may hold an answer."""

    adjustable: ClassVar[tuple[str, ...]] = ("previews",)
    of_previews: ClassVar[tuple[str, ...]] = ("previews",)

    previews: bool = Field(default=True, description="tails are previewed where there are graphs for it")


class MixtureSettings(GroupedSettings):
    """Plan `mixture`: how the rare classes are searched, as of plan `grouped`; the frequent ones are all scored."""

    adjustable: ClassVar[tuple[str, ...]] = ("opened", "previewed", "candidates", "full_view")


SETTINGS: dict[str, type[PlanSettings]] = {
    "full": FullSettings,
    "preview": PreviewSettings,
    "screen": ScreenSettings,
    "gated": GatedSettings,
    "cascade": CascadeSettings,
    "grouped": GroupedSettings,
    "adaptive": AdaptiveSettings,
    "mixture": MixtureSettings,
}

SELF_REFERENCE_PLANS = (
    "gated",
    "adaptive",
    "mixture",
)  # with a whole distribution of their own, which may be the reference
EXACT_PLANS = ("certified",)  # plans that prove exact answers; what they have is the manifest's certificate


def describe_error(error: ValidationError) -> str:
    """The first of the errors: `previewed=0 is wrong: Input should be greater than or equal to 1`."""
    first = error.errors()[0]
    if first["type"] == "value_error":  # of several settings together, which the sentence names
        return str(first["ctx"]["error"])
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("missing", "extra_forbidden"):
        return f"{cut(name)} is {'missing' if first['type'] == 'missing' else 'not known'}"
    return f"{cut(name)}={cut(first['input'])} is wrong: {first['msg']}"
