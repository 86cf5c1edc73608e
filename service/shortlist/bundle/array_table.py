"""The arrays of a bundle: what each must be, by file and plan, and by role. `Bundle` reads none that is not listed.

Sizes: `V` classes and `d` dimensions, of the manifest; `m` classes without padding; `n` ids of all sets, experts or
tails end to end; `sets` clusters, experts, or the head and its tails; `groups`, `blocks`, `terms` of plan `grouped`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from .array_rules import (
    Array,
    ArrayRule,
    Arrays,
    Sizes,
    check_classes,
    check_classes_or_padding,
    check_distinct,
    check_finite,
    check_finite_or_lowest,
    check_halves,
    check_not_negative,
    check_positive,
    check_ranks,
    find_unsorted,
    make_offsets_check,
)
from .manifest import Manifest
from .settings import MAX_BLOCK_CLASSES, CascadeSettings

INDEX_FILE = "index.safetensors"
CALIBRATION_FILE = "calibration.safetensors"
CERTIFICATE_FILE = "certificate.safetensors"

Relation = Callable[[Arrays, Manifest, Sizes], str | None]  # what is wrong with arrays together, or None


def floats(*shape: str, optional: bool = False) -> ArrayRule:
    """Finite float32."""
    return ArrayRule("float32", shape, (check_finite,), optional)


def bytes_(*shape: str, optional: bool = False) -> ArrayRule:
    """Any int8."""
    return ArrayRule("int8", shape, (), optional)


def check_lines(array: Array, sizes: Sizes) -> str | None:
    """Each class has d weights, and its bias where there is one."""
    dim = sizes["d"]
    return (
        None
        if array.shape[1] in (dim, dim + 1)
        else f"has {array.shape[1]} numbers a class instead of {dim} or one more"
    )


def check_components(array: Array, sizes: Sizes) -> str | None:
    """The layers are those of K components of d dimensions and G gates, K, or one less where K is a power of two."""
    gates, width = sizes["gates"], sizes["gate_width"]
    components, rest = divmod(array.shape[1] - gates * (width + 1), sizes["d"])
    is_tree = gates == components - 1 and not components & gates
    return None if not rest and (gates == components or is_tree) else "has no whole number of components for its gates"


IDS = ArrayRule("int64", ("n",), (check_classes,))
OFFSETS = ArrayRule("int64", ("sets+1",), (make_offsets_check("n"),))
ORDER = ArrayRule("int64", ("m",), (check_classes, check_distinct))
LOGPROBS = (check_finite_or_lowest,)

GROUPED: Mapping[str, ArrayRule] = {
    "order": ORDER,
    "starts": ArrayRule("int64", ("groups+1",), (make_offsets_check("m"),)),
    "block_starts": ArrayRule("int64", ("blocks+1",), (make_offsets_check("m", MAX_BLOCK_CLASSES),)),
    "projection": bytes_("W", "d"),
    "projection_scale": floats("W"),
    "tail": floats("d"),
    "tail_offset": ArrayRule("float32", ("1",), (check_finite_or_lowest,)),  # -inf where nothing is left to guess
    "tail_terms": floats("terms", "d", optional=True),
    "tail_term_offsets": floats("terms", optional=True),
    "preview": bytes_("m", "wide"),
    "scale": floats("m"),
    "fine": bytes_("m", "narrow", optional=True),
    "fine_scale": floats("m", optional=True),
    "preview_raise": floats("m"),
    "group_codes": bytes_("groups", "compared"),
    "group_scale": floats("groups"),
    "group_fine_scale": floats("groups", optional=True),  # bundles that lack it have one scale for all columns
    "group_raise": floats("groups", optional=True),  # bundles that lack it have it in `group_reach`, for any context
    "group_reach": floats("groups"),
    "row_mean": floats("d", optional=True),  # bundles that lack it have previews of the rows as they are
    "code_scale": floats("m"),
    "bias": floats("m", optional=True),
}
# Rules of index.safetensors, by plan
INDEX: Mapping[str, Mapping[str, ArrayRule]] = {
    "screen": {"ids": IDS, "offsets": OFFSETS, "tail": floats("sets")},
    "gated": {"ids": IDS, "offsets": OFFSETS},
    "adaptive": {"ids": IDS._replace(checks=(check_classes, check_distinct)), "offsets": OFFSETS},
    "cascade": {"order": ORDER},
    "grouped": GROUPED,
    "mixture": {**GROUPED, "frequent": ArrayRule("int64", ("frequent",), (check_classes, check_distinct))},
}
EQUAL_RUNS = ("equal_rows", "equal_starts", "equal_stops")  # classes as good as the last of a row, any number of runs
CALIBRATION: Mapping[str, ArrayRule] = {
    "contexts": floats("rows", "d"),
    "ids": ArrayRule("int64", ("rows", "depth"), (check_classes_or_padding,)),
    "logprobs": ArrayRule("float32", ("rows", "depth"), LOGPROBS),
    "levels": ArrayRule("int64", ("rows", "depth"), (check_ranks,), optional=True),
    "head_ids": ArrayRule("int64", ("rows", "canary_k"), (check_classes_or_padding,)),
    "head_logprobs": ArrayRule("float32", ("rows", "canary_k"), LOGPROBS),
}
CERTIFICATE: Mapping[str, ArrayRule] = {
    "norms": ArrayRule("float32", ("V",), (check_not_negative,)),
    "scale": ArrayRule("float32", ("V",), (check_positive,)),
    "floor": ArrayRule("float32", ("1",), (check_not_negative,)),
    "mean": floats("d"),
    "factors": ArrayRule("float32", ("3",), (check_not_negative,)),
    "constant": ArrayRule("float32", ("V",), (check_finite_or_lowest,)),
    # what loops read besides; bundles that lack it are answered by graphs
    "common": floats("d", optional=True),
    "four_bit_scale": ArrayRule("float32", ("V",), (check_not_negative,), optional=True),
    "four_bit_factors": ArrayRule("float32", ("7",), (check_not_negative,), optional=True),
    "error_directions": floats("errors", "d", optional=True),
    "level_directions": floats("levels", "d", optional=True),
}
# Rules of the raw arrays, by role. The values of weights are not looked at: they may be gigabytes, and are no index
RAW: Mapping[str, ArrayRule] = {
    "exact_weight": ArrayRule("float32", ("V", "d")),
    "exact_bias": floats("V"),
    "exact_padding": ArrayRule("float32", ("V",), (check_finite_or_lowest,)),
    "search_codes": ArrayRule("uint8", ("m", "d")),
    "search_weight": ArrayRule("float32", ("V", "d")),
    "screen_columns": ArrayRule("float32", ("d", "sets")),
    "screen_sets": ArrayRule("float32", ("n", "lines"), (check_lines,)),
    "screen_projection": ArrayRule("float32", ("d", "W")),
    "screen_previews": ArrayRule("int8", ("n", "W")),
    "screen_scales": floats("n"),
    "gate_columns": ArrayRule("float32", ("d", "sets")),
    "gate_sets": ArrayRule("float32", ("n", "d+1")),
    "mixture_gates": ArrayRule("float32", ("gate_width", "frequent+1")),
    "mixture_gate_bias": ArrayRule("float32", ("gates", "frequent+1")),
    "mixture_layers": ArrayRule("float32", ("d", "layers"), (check_components,)),
    "mixture_layers_bias": ArrayRule("float32", ("layers",)),
    "mixture_columns": ArrayRule("float32", ("d", "frequent")),
    "mixture_bias": ArrayRule("float32", ("frequent",)),
    "mixture_preview_rows": ArrayRule("int8", ("frequent", "d")),
    "mixture_preview_scales": ArrayRule("float32", ("frequent",), (check_positive,)),
    "mixture_preview_errors": ArrayRule("float32", ("frequent",), (check_not_negative,)),
    "mixture_preview_sizes": ArrayRule("float32", ("frequent",), (check_not_negative,)),
    "bounds_change": ArrayRule("float32", ("parts", "parts", "d"), (check_halves,)),
    "bounds_rows": ArrayRule("uint8", ("V", "d")),
    "bounds_four_bits": ArrayRule("uint8", ("class_blocks", "four_bit_lines", "16", "4")),
    # names of classes, in the order in which they are read
    "name_text": ArrayRule("uint8", ("name_bytes",)),
    "name_offsets": ArrayRule("int64", ("V+1",), (make_offsets_check("name_bytes"),)),
    "name_hashes": ArrayRule("uint64", ("V",)),
    "name_classes": ArrayRule("int64", ("V",), (check_classes, check_distinct)),
}


def list_sizes(manifest: Manifest) -> Sizes:
    """The sizes that the manifest says, and those of numbers that stand for themselves."""
    classes, dim = manifest.classes, manifest.dim
    sizes = {str(number): number for number in (1, 3, 4, 7, 16)}
    blocks = {"parts": math.isqrt(dim - 1) + 1, "class_blocks": -(-classes // 16), "four_bit_lines": -(-dim // 8)}
    return {"V": classes, "d": dim} | blocks | sizes


def find_rules(file: str, plan: str) -> Mapping[str, ArrayRule]:
    """The rules of a file of a bundle with this plan, by the names of its arrays."""
    if file == INDEX_FILE:
        return INDEX[plan]
    return {CALIBRATION_FILE: CALIBRATION, CERTIFICATE_FILE: CERTIFICATE}[file]


def find_contradiction(file: str, arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """What is wrong with the arrays of a file together, each of which keeps its rule, or None."""
    relation = CALIBRATION_RELATION if file == CALIBRATION_FILE else None
    if file == INDEX_FILE:
        relation = INDEX_RELATIONS.get(manifest.plan)
    return None if relation is None else relation(arrays, manifest, sizes)


def relate_sets(arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """Ids ascend in each set."""
    del manifest, sizes
    return "has 'ids', which do not ascend" if find_unsorted(arrays["ids"], arrays["offsets"]) else None


def relate_cascade(arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """There are as many common classes as the settings say, and a graph for the others where there are any."""
    del arrays
    settings = manifest.settings
    assert isinstance(settings, CascadeSettings)
    if settings.common > sizes["m"] or (settings.common < sizes["m"]) != ("rare" in manifest.graphs):
        return f"has {sizes['m']} classes, which do not fit the setting common={settings.common} and its graphs"
    return None


def relate_groups(arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """Every group begins with a block; the columns of previews are those of the projection."""
    del manifest
    for one, other in (("fine", "fine_scale"), ("tail_terms", "tail_term_offsets")):
        if (one in arrays) != (other in arrays):
            return f"has one of {one!r} and {other!r} alone"
    if sizes["W"] != sizes["wide"] + sizes.get("narrow", 0) or sizes["compared"] > sizes["W"]:
        return f"has previews and centres that do not fit the {sizes['W']} columns of 'projection'"
    if not np.isin(arrays["starts"], arrays["block_starts"], assume_unique=True).all():
        return "has 'starts' of groups where no block begins"
    return None


def relate_mixture(arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """Every class is either frequent or searched for; the groups are as of plan `grouped`."""
    if sizes["m"] + sizes["frequent"] != sizes["V"] or np.isin(arrays["frequent"], arrays["order"]).any():
        return "has classes in both or none of 'frequent' and 'order'"
    return relate_groups(arrays, manifest, sizes)


def relate_calibration(arrays: Arrays, manifest: Manifest, sizes: Sizes) -> str | None:
    """As many classes were asked for as the head answers, and there are exact answers of so many."""
    k = sizes["canary_k"]
    if k > min(manifest.max_k, sizes["depth"]):
        return f"has answers of {k} classes, which is too many"
    return find_wrong_runs(arrays, sizes) if "levels" in arrays else None


def find_wrong_runs(arrays: Arrays, sizes: Sizes) -> str | None:
    """Runs of equal classes are of the calibration's rows, ascending, and each holds classes."""
    runs = [arrays[name] for name in EQUAL_RUNS if name in arrays]
    length = runs[0].size if runs else 0
    if [(run.dtype, run.shape) for run in runs] != [(np.dtype(np.int64), (length,))] * len(EQUAL_RUNS):
        return f"has 'levels' without {', '.join(EQUAL_RUNS)}, int64 of one length"
    rows, starts, stops = runs
    ordered = (np.diff(rows) >= 0).all() and (starts < stops).all()
    inside = min(rows.min(initial=0), starts.min(initial=0)) >= 0
    inside = inside and rows.max(initial=0) < sizes["rows"] and stops.max(initial=0) <= sizes["V"]
    return None if ordered and inside else "has runs of equal classes outside of its rows or classes"


INDEX_RELATIONS: Mapping[str, Relation] = {
    "screen": relate_sets,
    "gated": relate_sets,
    "adaptive": relate_sets,
    "cascade": relate_cascade,
    "grouped": relate_groups,
    "mixture": relate_mixture,
}
CALIBRATION_RELATION: Relation = relate_calibration
