"""The registry of methods: `--method NAME` is looked up here.

A new method is a module beside this, a line below, and its name in `commands.export`.
"""

from __future__ import annotations

from collections.abc import Collection

from shortlist.errors import BadInput

from .adaptive import AdaptiveMethod
from .base import DenseMethod, Fitted, TrainedMethod
from .cascade import CascadeMethod
from .ds import DsMethod
from .ds_svd import DsSvdMethod
from .dsoftmax import DsoftmaxMethod
from .full import FullMethod
from .grouped import GroupedMethod
from .l2s import L2sMethod
from .mixtures.mixtape import MixtapeMethod
from .svd import SvdMethod

METHODS: dict[str, DenseMethod | TrainedMethod] = {
    "full": FullMethod(),
    "svd": SvdMethod(),
    "l2s": L2sMethod(),
    "cascade": CascadeMethod(),
    "grouped": GroupedMethod(),
    "ds": DsMethod(),
    "ds-svd": DsSvdMethod(),
    "adaptive": AdaptiveMethod(),
    "dsoftmax": DsoftmaxMethod(),
    "mixtape": MixtapeMethod(),
}
DEFAULT_METHOD = "grouped"  # the fastest with compiled loops, and it promises a precision

__all__ = ["DEFAULT_METHOD", "METHODS", "DenseMethod", "Fitted", "TrainedMethod", "choose_device", "find_method"]


def find_method(name: str) -> DenseMethod | TrainedMethod:
    """The method of this name; raises BadInput with the names that there are."""
    if name not in METHODS:
        raise BadInput(f"there is no method '{name}': choose one of {', '.join(METHODS)}")
    return METHODS[name]


def choose_device(name: str, device: str | None) -> dict[str, str]:
    """The option `device` of the method of this name; raises BadInput for a GPU where the method uses none."""
    if device is None:
        return {}
    if find_method(name).trains_on_devices:
        return {"device": device}
    if device != "cpu":
        raise BadInput(f"method {name} is made on the CPU: leave --device {device} out")
    return {}


def refuse_training_options(name: str, options: Collection[str]) -> None:
    """Raise BadInput where one of these options of a method is of a training, for a head that needs none."""
    method = find_method(name)
    of_training = method.training_options if isinstance(method, TrainedMethod) else ()
    for option in options:
        if option in of_training:
            raise BadInput(f"option {option} is of a training, and the head of --head is trained: leave {option} out")
