"""What a method offers to the exporter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from shortlist.bundle.manifest import Normalizer
from shortlist.errors import BadInput
from torch import nn

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.inputs.sources import Contexts, Dense


class Options(BaseModel):
    """Options of a method: typed, unknown names refused."""

    model_config = ConfigDict(extra="forbid")


O = TypeVar("O", bound=Options)


@dataclass(frozen=True)
class Fitted:
    """A fitted head: the torch module, and what the manifest says of it.

    notes: sentences for the user. retrained: a dense softmax trained in the same way, where there is one.
    normalizer: where options change the method's own.
    """

    module: nn.Module
    cost: Cost
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    retrained: nn.Module | None = None
    normalizer: Normalizer | None = None


class Method(Protocol):
    """What is written of any fitted head. One module a method; stateless."""

    plan: ClassVar[str]
    normalizer: ClassVar[Normalizer]

    def graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> dict[str, str]:
        """Write the method's own ONNX graphs into `folder`; role -> file name."""
        ...

    def index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        """Arrays for index.safetensors: which classes are where; none for plans that want none."""
        ...


class DenseMethod(Method, Protocol):
    """fit -> graphs, of a head that approximates the dense one."""

    reference: ClassVar[Literal["dense", "self"]]

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Make the head from the dense layer and contexts [n, d]; raises BadInput on a wrong option."""
        ...


@runtime_checkable
class TrainedMethod(Method, Protocol):
    """learn or restore -> graphs, of a head whose own distribution is the truth (`reference` is "self").

    The module of both has `log_prob`: contexts [B, d] -> [B, V], -inf for probability 0. No rows.onnx is written: the
    plan's `distribution` gives every logit. dense.onnx is only compared with.
    """

    reference: ClassVar[Literal["dense", "self"]]

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Train the head on contexts [n, d], with targets where there are any; raises BadInput on a wrong option."""
        ...

    def restore(
        self, dense: Dense, state: dict[str, torch.Tensor], examples: Contexts, options: dict[str, str]
    ) -> Fitted:
        """The head of a `state_dict` that was trained elsewhere; raises BadInput where it does not fit the layer."""
        ...


def no_index(method: Method, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
    """Method.index of methods whose plan wants none."""
    del method, fitted
    return {}


def parse_options(kind: type[O], values: dict[str, str]) -> O:
    """`--set name=value` pairs as the method's options; raises BadInput naming the option."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise BadInput(f"there is no option '{name}': choose from {', '.join(kind.model_fields)}") from None
        raise BadInput(f"option {name}={values.get(name)} is wrong: {first['msg']}") from None
