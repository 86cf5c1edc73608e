"""What a large head's ways to answer rows with lists cost."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .settings import Count, Size


class ListCosts(BaseModel):
    """Microseconds for one row of what may answer it where it has lists. They are compared, and no more than rough."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    ks: tuple[Count, ...] = Field(min_length=1, description="numbers of classes asked for, ascending")
    asked: tuple[Size, ...] = Field(min_length=1, description="of a search for so many, without lists")
    listed: Size = Field(description="for each class of a list whose classes are all scored exactly")
    exact: Size | None = Field(default=None, description="of an exact answer with an allow list of a tenth; None: none")

    @model_validator(mode="after")
    def check_consistency(self) -> Self:
        """Raise ValueError where fields contradict each other."""
        if len(self.ks) != len(self.asked) or list(self.ks) != sorted(set(self.ks)):
            raise ValueError("ks must ascend, and asked have a cost for each of them")
        return self
