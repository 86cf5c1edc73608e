"""The graphs of a bundle: what each that a plan opens must take and give, by plan and role.

Names of sizes are those of `array_table`, and `common` and `rare` classes of plan `cascade`, `tails` of plan
`adaptive`, `best` clusters that a screen returns, and `part`, the classes of the cluster, expert or tail that a role
such as `cluster-0007` is of. `*` differs from call to call; `?` is a size that only the graph knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from shortlist.core.graph_file import ANY_SIZE, Signature, TensorType

from .array_rules import Sizes
from .manifest import Manifest
from .settings import CascadeSettings, ScreenSettings

Types = dict[str, str]  # name -> `float * d`: element, then the sizes

CONTEXT = {"context": "float * d"}
ROW = {"context": "float 1 d"}  # of graphs for a single row
COUNT = {"k": "int64 1"}
ENDS = {"first": "int64 1", "last": "int64 1"}
LOGITS = {"logits": "float * V"}
BEST = {"top_logits": "float * *", "top_index": "int64 * *", "log_normalizer": "float *"}
EXPERT = CONTEXT | {"scale": "float * 1"} | COUNT
IN_ONE_CALL = {
    "cluster": "int64 *", "top_logits": "float * *", "top_position": "int64 * *", "log_normalizer": "float *",
}  # fmt: skip
TAIL = CONTEXT | {"cluster": "float *"} | COUNT | {"best_logits": "float * *", "best_ids": "int64 * *"}
TOP = {"top_logits": "float * *", "top_ids": "int64 * *"}
RESCORE = (
    ROW | {"positions": "int64 *", "full_view": "int64 1"},
    {"ids": "int64 *", "logits": "float *", "inside": "float 1"},
)
INTEGERS = {"integers": "uint8 * ?", "row_scale": "float * 1"}

Graphs = dict[str, tuple[Types, Types]]  # role, without a number -> inputs, outputs

SHARED: Graphs = {
    "dense": (CONTEXT, LOGITS),
    "rows": (CONTEXT | {"ids": "int64 * *"}, {"logits": "float * *"}),
    "bounds": (CONTEXT, {"estimate": "float * V", "spread": "float * 1"}),
}
STAGED_SCREEN: Graphs = {
    "screen": (CONTEXT, {"scores": "float * sets"}),
    "tail": (CONTEXT, LOGITS),
    "terms": (CONTEXT, {"tail": "float *"}),
    "cluster": (CONTEXT, {"logits": "float * part"}),
}
GROUPED: Graphs = {
    "fused": (
        CONTEXT,
        {"scores": "float * groups", "tail": "float *", "coarse": "float * m", "previews": "float * m"},
    ),
    "rescore": RESCORE,
}
BY_PLAN: Mapping[str, Graphs] = {
    "full": {},
    "preview": {"preview": (CONTEXT, LOGITS)},
    "screen": STAGED_SCREEN | {
        "cluster": (CONTEXT | COUNT, {"logits": "float * part"} | BEST),
        "any": (CONTEXT | ENDS | COUNT, {"logits": "float * *"} | BEST),
        "fused": (
            ROW | COUNT,
            {"best_scores": "float 1 best", "best_clusters": "int64 1 best", "logits": "float * *"} | BEST,
        ),
    },
    "gated": {
        "gate": (CONTEXT, {"scores": "float * sets"}),
        "expert": (EXPERT, {"logits": "float * part"} | BEST),
        "any": (EXPERT | ENDS, {"logits": "float * *"} | BEST),
        "preview": (EXPERT | {"n": "int64 1"}, BEST),
        "fused": (ROW | COUNT, IN_ONE_CALL),
        "batch": (CONTEXT | COUNT, IN_ONE_CALL),
    },
    "cascade": {
        "fused": (CONTEXT, INTEGERS | {"reach": "float *", "tail": "float *", "previews": "float * common"}),
        "rare": (INTEGERS, {"previews": "float * rare"}),
        "rescore": RESCORE,
    },
    "grouped": GROUPED,
    "mixture": GROUPED | {
        "front": (CONTEXT, {"mean": "float * d", "logits": "float * frequent"}),
        "rest": (CONTEXT, {"logits": "float * m"}),
    },
    "adaptive": {
        "head": (CONTEXT | COUNT, {"logits": "float * part"} | TOP | {"clusters": "float * tails"}),
        "tail": (TAIL, {"logits": "float * part"} | TOP),
        "preview": (TAIL, TOP),
        "fused": (ROW | COUNT, TOP | {"opened": "bool 1 tails"}),
    },
}  # fmt: skip


def find_signature(role: str, manifest: Manifest, sizes: Sizes, part_sizes: list[int]) -> Signature | None:
    """The signature of the graph with this role; None where the plan with its settings has no such graph.

    sizes: of the arrays, which have to be read before. part_sizes: classes of each cluster, expert, or of head and
    tails.
    """
    stem, _, number = role.partition("-")
    graphs = SHARED | find_graphs(manifest)
    if stem not in graphs:
        return None
    known = sizes | list_plan_sizes(manifest, sizes)
    part = int(number or 0) + (manifest.plan == "adaptive" and stem != "head")
    if part < len(part_sizes):
        known |= {"part": part_sizes[part]}
    inputs, outputs = graphs[stem]
    return Signature(*({name: parse_type(text, known) for name, text in types.items()} for types in (inputs, outputs)))


def find_graphs(manifest: Manifest) -> Graphs:
    """The graphs of the plan: clusters of a second stage give previews, and no others stand for them."""
    settings = manifest.settings
    if isinstance(settings, ScreenSettings) and settings.second_stage:
        return STAGED_SCREEN
    return BY_PLAN[manifest.plan]


def list_plan_sizes(manifest: Manifest, sizes: Sizes) -> Sizes:
    """The sizes that follow from settings and arrays."""
    known: Sizes = {}
    if "sets" in sizes:
        known |= {"best": min(2, sizes["sets"]), "tails": sizes["sets"] - 1}
    if isinstance(manifest.settings, CascadeSettings) and "m" in sizes:
        known |= {"common": manifest.settings.common, "rare": sizes["m"] - manifest.settings.common}
    return known


def parse_type(text: str, sizes: Sizes) -> TensorType:
    """The type that `text` says; a size that is not known is a mistake of the plan: it has not read its arrays."""
    element, *names = text.split()
    free: dict[str, int | None] = {"*": None, "?": ANY_SIZE}
    return TensorType(element, tuple(free[name] if name in free else sizes[name] for name in names))
