"""Methods: what each offers to the exporter, and what several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from shortlist.bundle.manifest import Normalizer
from shortlist.bundle.settings import FullSettings, PlanSettings
from shortlist.errors import BadInput
from torch import nn

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.inputs.sources import Contexts, Dense


class Options(BaseModel):
    """The `--set` options of a method; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


O = TypeVar("O", bound=Options)
Reference = Literal["dense", "self"]


@dataclass(frozen=True)
class Fitted:
    """A fitted head: the torch module, and what the manifest says of it.

    settings: of the plan. fit: what the method was given and learnt, for provenance and display, but for what is in
    the settings. notes: sentences for the user. retrained: a dense softmax trained in the same way, where there is
    one. normalizer: where options change the method's own.
    """

    module: nn.Module
    cost: Cost
    settings: PlanSettings = field(default_factory=FullSettings)
    fit: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    retrained: nn.Module | None = None
    normalizer: Normalizer | None = None


class Method(ABC):
    """How a head is made, and what is written of it. One module a method, stateless; `registry` lists them all.

    plan: of the service, which answers with the head. reference: what the head is compared with, the given dense layer
    or the head's own full distribution. normalizer: what its log-probabilities are normalised over. ways_to_find_more:
    what to do where a head misses too many, for errors and notes. ways_to_normalize: the same where log-probabilities
    are far off. trains_on_devices: whether an option `device` says where it is trained.
    """

    plan: ClassVar[str]
    trains_on_devices: ClassVar[bool] = False
    reference: ClassVar[Reference]
    normalizer: ClassVar[Normalizer]
    ways_to_find_more: ClassVar[str] = "fit it to more contexts like those of the requests, or choose another --method"
    ways_to_normalize: ClassVar[str] = (
        "where they matter choose another --method, or keep the dense layer and ask with `exact`"
    )

    @abstractmethod
    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        """Write the method's own ONNX graphs, and arrays for loops in their place, into `folder`."""

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        """Arrays for index.safetensors, which say where each class is; none for plans that need none."""
        del fitted
        return {}

    def find_proved_layer(self, fitted: Fitted, dense: Dense, contexts: FloatArray) -> tuple[Dense, FloatArray] | None:
        """The layer whose exact answers bounds may prove, and its vectors for `contexts` [n, d]; None for none."""
        del fitted, dense, contexts
        return None


class DenseMethod(Method):
    """A method that fits a head to the given dense layer, which stays the truth."""

    reference: ClassVar[Reference] = "dense"
    normalizer: ClassVar[Normalizer] = "estimated"

    def count_fit_rows(self, dense: Dense, rows: int) -> int | None:
        """How many contexts' logits over all classes take about as long as `fit` to so many contexts; None: unknown."""
        del dense, rows
        return None

    def find_proved_layer(self, fitted: Fitted, dense: Dense, contexts: FloatArray) -> tuple[Dense, FloatArray] | None:
        del fitted
        return dense, contexts

    @abstractmethod
    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Make the head from the dense layer and contexts [n, d]; raises BadInput on a wrong option."""


class TrainedMethod(Method):
    """A method that trains a head of its own, whose full distribution is the truth.

    The module of a fitted head has `log_prob`: contexts [B, d] -> [B, V], -inf for probability 0. No rows.onnx is
    written: the plan's `distribution` gives every logit. dense.onnx is only compared with.

    training_options: those that say nothing of a head that was trained elsewhere.
    """

    training_options: ClassVar[tuple[str, ...]] = ("epochs", "batch", "learning_rate")
    reference: ClassVar[Reference] = "self"
    normalizer: ClassVar[Normalizer] = "exact"

    @abstractmethod
    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Train the head on contexts [n, d], with targets where there are any; raises BadInput on a wrong option."""

    @abstractmethod
    def restore(
        self, dense: Dense, state: dict[str, torch.Tensor], examples: Contexts, options: dict[str, str]
    ) -> Fitted:
        """Make the head of a `state_dict` that was trained elsewhere.

        Raises BadInput where it does not fit the layer.
        """


def parse_options(kind: type[O], values: dict[str, str]) -> O:
    """Turn `--set name=value` pairs into the method's options; raises BadInput that names a wrong one."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            there_are = f"choose from {', '.join(kind.model_fields)}" if kind.model_fields else "this method has none"
            raise BadInput(f"there is no option '{name}': {there_are}") from None
        raise BadInput(f"option {name}={values.get(name)} is wrong: {first['msg']}") from None


def check_width(width: int, dense: Dense) -> None:
    """Raise BadInput where a preview would have more dimensions than the layer."""
    if width > dense.dim:
        raise BadInput(f"option width={width} is over d = {dense.dim}: choose a narrower preview")


def choose_width(option: int | None, default: int, dense: Dense) -> int:
    """Dimensions of a preview: the option's, else the default, 1 at least; raises BadInput where they are over d."""
    width = option or max(1, default)
    check_width(width, dense)
    return width


def choose_candidates(option: int | None, default: int, full_view: int, dense: Dense) -> int:
    """How many classes are scored by int8 rows: the option, else the default, from `full_view` to the layer's classes.

    Raises BadInput where the option is under `full_view`.
    """
    if option is not None and option < full_view:
        raise BadInput(f"option candidates={option} is under full_view={full_view}: choose more candidates")
    return min(max(option or default, full_view), dense.real_classes)


def shuffle_rows(rows: int, seed: int) -> torch.Tensor:
    """The numbers of `rows` contexts in random order, [rows] int64."""
    return torch.from_numpy(np.random.default_rng(seed).permutation(rows))
