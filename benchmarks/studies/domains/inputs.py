"""What the study is of: the layer, the contexts to fit on, and kinds of text with exact answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput
from shortlist.evaluation.truth import Truth, compute_truth
from shortlist_exporter.capture.files import write_head
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.core.types import count_rows
from shortlist_exporter.inputs.sources import Contexts, Dense, load_contexts, load_dense

from benchmarks.common.truth import rank_in_float64
from benchmarks.datasets.kinds.base import Kind, Recipe
from benchmarks.datasets.kinds.excerpts import SHIPPED_TEXTS
from benchmarks.datasets.kinds.recipes import RECIPES

FIT_ROWS = 60_000
TRUE_CLASSES = 5
WIKITEXT = "wikitext"  # where contenders are tuned, and speed is compared
DOMAINS = (
    *(WIKITEXT, "news", "dialogue", "python", "javascript", "html", "markdown", "manual pages"),
    *("licences", "german", "italian", "korean"),
)


@dataclass(frozen=True)
class Domain:
    """A kind of text with the exact `TRUE_CLASSES` best classes of every row. fingerprint: of its contexts."""

    kind: Kind
    truth: Truth
    fingerprint: str


def choose_recipes(names: Sequence[str]) -> list[Recipe]:
    """The recipes of these names, in the order of all; raises BadInput."""
    known = {recipe.name: recipe for recipe in RECIPES}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise BadInput(f"there is no kind '{unknown}': known are {', '.join(known)}")
    if WIKITEXT not in names:
        raise BadInput(f"contenders are tuned on the kind '{WIKITEXT}': name it, too")
    return [recipe for name, recipe in known.items() if name in names]


def load_layer(folder: Path) -> tuple[Dense, Contexts]:
    """The layer and the contexts of the shipped texts; captured into `folder` where they are not there."""
    head, fit = folder / "head.safetensors", folder / "fit.safetensors"
    if not (head.is_file() and fit.is_file()):
        path = find_packaged_model()
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar(f"loading {path.name}") as report:
            model = load_model(path)
            write_head(head, model.dense, path.name)
            capture(model, [Text(SHIPPED_TEXTS)], fit, rows=FIT_ROWS, progress=report)
    return load_dense(head), load_contexts(fit)


def make_domain(kind: Kind, dense: Dense, folder: Path) -> Domain:
    """A kind with its exact answers, which are computed once and stay in `folder`."""
    fingerprint = hash_contexts(kind.contexts, dense)
    path = folder / f"{kind.name.replace(' ', '-')}-{fingerprint}.safetensors"
    if path.is_file():
        return Domain(kind, Truth.from_tensors(kind.contexts, load_file(path)), fingerprint)
    with progress_bar(f"dense answers: {kind.name}") as report:
        count = count_rows(report, "dense answers", kind.contexts)
        truth = compute_truth(rank_in_float64(dense, kind.contexts), kind.contexts, TRUE_CLASSES, progress=count)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(truth.to_tensors(), path)
    return Domain(kind, truth, fingerprint)


def hash_contexts(contexts: FloatArray, dense: Dense) -> str:
    """Sixteen hexadecimal digits of a hash of the contexts and the layer."""
    return hashlib.sha256(np.ascontiguousarray(contexts).data.tobytes() + dense.sha256.encode()).hexdigest()[:16]
