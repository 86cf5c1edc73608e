"""What is tried of each method: options to fit with, and one option that is swept without fitting again.

Methods that are not listed take part with their defaults, after those that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.errors import BadInput

from shortlist_exporter.core.types import Cost, FloatArray
from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.methods import grouped
from shortlist_exporter.methods.l2s import change_probes
from shortlist_exporter.methods.registry import METHODS, Fitted
from shortlist_exporter.methods.svd import change_full_view

DENSE_METHOD = "full"  # what the others are held against, and the answer of last resort
WIDTH_DIVISORS = (12, 8, 6, 4.5, 3, 2)  # d / W
SVD_FULL_VIEWS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
L2S_PROBES = (1, 2, 4)
GROUPED_OPENED_CLASSES = (
    1024,
    1536,
    2048,
    3072,
    4096,
    5120,
    6144,
    7168,
    8192,
    10240,
    12288,
    14336,
    16384,
    20480,
    24576,
    32768,
    49152,
    65536,
)
CASCADE_CANDIDATES = (64, 96, 128, 192, 256, 384, 512, 768, 1024)

Options = dict[str, str]
Setting = dict[str, int]
Adapt = Callable[[Fitted, Dense, FloatArray, Setting, int], Fitted]


@dataclass(frozen=True)
class Space:
    """builds: options to fit with, cheap ones first.

    setting: a setting of the plan, see `Head.with_settings`, with `values` in ascending order of precision and cost.
    least, most: the smallest and the largest of them that are worth a try for a layer; the smallest always is.
    adapt: calibrates a fitted head for one of them; None: it is fitted again with that option as any other.
    cost: by a manifest's fit and settings, for a swept option that is not how many classes are scored.
    """

    builds: Callable[[Dense], list[Options]]
    setting: str = ""
    values: tuple[int, ...] = ()
    adapt: Adapt | None = None
    cost: Callable[[Mapping[str, Any], Dense], Cost] | None = None
    least: Callable[[Dense], int] = lambda _: 1
    most: Callable[[Dense], int] = lambda dense: dense.classes // 4  # of classes that are scored by more than a preview


@dataclass(frozen=True)
class Build:
    """A method and the options that a head is fitted with."""

    method: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Method and options in a line."""
        return " ".join([self.method, *(f"{name}={value}" for name, value in self.options)])


def list_svd_builds(dense: Dense) -> list[Options]:
    """Int8 previews in the basis of contexts from d/12 to d/2; one of them in fp32, and the paper's own."""
    widths = [str(max(1, round(dense.dim / share))) for share in WIDTH_DIVISORS]
    ours = [{"basis": "context", "preview": "int8", "width": width} for width in widths]
    return [*ours, {"basis": "context", "preview": "fp32", "width": widths[2]}, {"basis": "weight"}]


def list_l2s_builds(dense: Dense) -> list[Options]:
    """Small sets with a second probe near the borders; larger ones with a preview inside."""
    small, large = (str(max(5, dense.classes // share)) for share in (40, 6))
    return [{"budget": small, "second_probe": "0.12"}, {"budget": large, "second_stage": "int8"}]


def list_cascade_builds(dense: Dense) -> list[Options]:
    """Previews from d/9 to d/4; what comes after them by default."""
    return [{"width": str(max(1, round(dense.dim / share)))} for share in (9, 6, 4)]


def list_grouped_builds(dense: Dense) -> list[Options]:
    """Previews of 4d/9 to 2d/3, all rows searched alike: what is opened is swept."""
    return [{"promise": "0", "width": str(max(1, round(dense.dim / share)))} for share in (2.25, 1.8, 1.5)]


SPACES = {
    "grouped": Space(
        list_grouped_builds,
        "opened",
        GROUPED_OPENED_CLASSES,
        cost=grouped.estimate_cost,
        least=grouped.count_candidates,
        most=lambda dense: dense.classes,
    ),
    "cascade": Space(list_cascade_builds, "candidates", CASCADE_CANDIDATES),
    "svd": Space(list_svd_builds, "full_view", SVD_FULL_VIEWS, change_full_view),
    "l2s": Space(list_l2s_builds, "probes", L2S_PROBES, change_probes),
}
DEFAULT_SPACE = Space(lambda _: [{}])


def find_space(method: str) -> Space:
    """What is tried of a method."""
    return SPACES.get(method, DEFAULT_SPACE)


def list_default_methods() -> list[str]:
    """Methods that approximate the given layer, cheap ones first; dense itself is always measured."""
    methods = dict.fromkeys([*SPACES, *METHODS])
    return [name for name in methods if name != DENSE_METHOD and METHODS[name].reference == "dense"]


def choose_methods(names: Sequence[str]) -> list[str]:
    """`names`, or the default ones; raises BadInput where one is unknown or is trained anew, or all are dense."""
    for name in names:
        if name not in METHODS:
            raise BadInput(f"there is no method '{name}': choose one of {', '.join(list_default_methods())}")
        if METHODS[name].reference != "dense":
            raise BadInput(
                f"method {name} is trained on targets and cannot be compared with the dense layer: "
                "leave it out of --methods"
            )
    methods = [name for name in names or list_default_methods() if name != DENSE_METHOD]
    if not methods:
        raise BadInput(f"method {DENSE_METHOD} is the dense layer, beside which others are measured: name others, too")
    return methods


def list_builds(methods: Sequence[str], dense: Dense) -> Iterator[Build]:
    """Every head to fit, cheap methods first."""
    for method in methods:
        for options in find_space(method).builds(dense):
            yield Build(method, tuple(options.items()))


def list_settings(method: str, dense: Dense) -> list[Setting]:
    """Every setting of the swept option for a layer of this size, cheap ones first."""
    space = find_space(method)
    values = [value for value in space.values if value >= space.least(dense)]
    fitting = [{space.setting: value} for value in values if value <= max(values[0], space.most(dense))]
    return fitting or [{}]
