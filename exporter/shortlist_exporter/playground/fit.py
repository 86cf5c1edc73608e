"""A head for a model that has none yet: contexts of its own, and an export of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import Bundle
from shortlist.bundle.repository import find_versions, list_names
from shortlist.errors import ShortlistError

from shortlist_exporter.capture.language_model import LanguageModel
from shortlist_exporter.capture.run import WINDOW, capture
from shortlist_exporter.capture.sampling import SAMPLED_ROWS, SAMPLED_WINDOW, capture_samples
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import load_contexts

METHOD = "grouped"
CONTEXTS_SUFFIX = ".contexts.safetensors"


def make_head(
    model: LanguageModel,
    repository: Path,
    name: str,
    texts: Sequence[Text] = (),
    rows: int | None = None,
    progress: Progress = quiet,
) -> None:
    """Export a head of `model` to `repository`, under `name`, unless one of its sizes is there.

    texts: to capture contexts of; without any, the model makes them up. rows: how many contexts, by default 60,000.
    Raises BadInput, NotFound, ShortlistError.
    """
    if has_head(repository, model.dense.classes, model.dense.dim):
        return
    contexts = repository.parent / f"{repository.name}-{name}{CONTEXTS_SUFFIX}"
    options: dict[str, Any] = {"rows": rows or SAMPLED_ROWS, "progress": progress}
    if texts:
        capture(model, texts, contexts, window=fit_window(model, WINDOW), **options)
    else:
        capture_samples(model, contexts, window=fit_window(model, SAMPLED_WINDOW), **options)
    version = max(find_versions(repository / name), default=0) + 1
    request = Request(method=METHOD, labels=model.make_labels())
    export(model.dense, load_contexts(contexts), repository / name / str(version), request, progress)
    contexts.unlink()


def fit_window(model: LanguageModel, window: int) -> int:
    """A window of so many tokens, or of as many as the model reads."""
    return window if model.max_window is None else min(window, model.max_window)


def has_head(repository: Path, classes: int, dim: int) -> bool:
    """Whether the repository has a bundle of a layer [V, d] of these sizes that opens."""
    if not repository.is_dir():
        return False
    folders = [path for name in list_names(repository) for path in find_versions(repository / name).values()]
    manifests = [manifest for manifest in map(read_manifest, folders) if manifest is not None]
    return any((manifest.classes, manifest.dim) == (classes, dim) for manifest in manifests)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a bundle; None where it cannot be opened, of which the service says more."""
    try:
        return Bundle(folder, verify=False).manifest
    except ShortlistError:
        return None
