"""`files`: any pair of files, `--set weights=FILE --set contexts=FILE`, held out as `shortlist export` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Contexts, check_pair, load_contexts, load_dense
from shortlist_exporter.inputs.splits import mark_held_out

from benchmarks.common.truth import load_truth

from .base import DataSet, Place


def load(place: Place) -> DataSet:
    """Fit on nine tenths, test on the rest, whole documents where the file has them."""
    options = place.options or {}
    if set(options) != {"weights", "contexts"}:
        raise BadInput("data set files takes --set weights=FILE --set contexts=FILE")
    dense, contexts = load_dense(Path(options["weights"])), load_contexts(Path(options["contexts"]))
    check_pair(dense, contexts)
    held_out = mark_held_out(contexts)
    targets = contexts.targets
    key = f"{dense.sha256[:16]}-{contexts.sha256[:16]}"
    truth = load_truth(
        place.cache / "files" / f"{key}.safetensors",
        dense,
        contexts.contexts[held_out],
        None if targets is None else targets[held_out],
    )
    fit = Contexts(
        contexts.contexts[~held_out],
        None if targets is None else np.asarray(targets[~held_out]),
        sha256=contexts.sha256,
    )
    return DataSet(f"files {Path(options['weights']).name}", dense, fit, truth)
