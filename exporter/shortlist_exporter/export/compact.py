"""The next version of a model, which holds the changes of its items itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from shortlist.bundle.class_sets import SETS_FOLDER, list_set_names
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.bundle.repository import find_version_folders
from shortlist.errors import BadInput, BundleError, NotFound
from shortlist.items.overlay import ItemOverlay
from shortlist.items.records import LogStart, find_log, find_position, read_records

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.inputs.sampled import normalize_contexts
from shortlist_exporter.inputs.sources import Contexts, Dense

from .like import load_like_layer, make_like_request
from .request import Request, limit_classes
from .run import export


@dataclass(frozen=True)
class Texts:
    """The texts of classes, each None where there are none."""

    labels: list[str] | None
    names: list[str] | None

    def take(self, places: Sequence[int]) -> Texts:
        """Those of some classes."""
        lists = (None if texts is None else [texts[place] for place in places] for texts in (self.labels, self.names))
        return Texts(*lists)


def find_newest(folder: Path) -> tuple[Path, Path]:
    """The newest version of a model, and where the next one goes; raises NotFound."""
    folders = find_version_folders(folder)
    if not folders:
        raise NotFound(f"{folder} holds no versions: name the folder <repository>/<name>")
    newest = max(folders)
    return folders[newest], folder / str(newest + 1)


def compact(
    folder: Path,
    logs: Path,
    contexts: Contexts | None = None,
    *,
    renumber: bool = False,
    threads: int | None = None,
    progress: Progress = quiet,
) -> Manifest:
    """Export the newest version of the model at `folder` again, with the changes of its items; returns the manifest.

    logs: the folder of the logs of changes. contexts: to fit on and to measure by, by default those in the bundle.
    renumber: whether removed items go; else they keep their ids, and are returned no more. Raises BadInput, and the
    errors of `export`.
    """
    source, out = find_newest(folder)
    bundle = Bundle(source)
    if bundle.manifest.reference != "dense":
        raise BadInput(f"{source} is its own reference, so its items do not change: train it again")
    if renumber:
        check_renumbering(bundle)
    overlay = replay_changes(bundle, find_log(logs, folder.name))
    dense, texts = apply_changes(load_like_layer(bundle), Texts(bundle.labels(), list_names(bundle)), overlay)
    if not dense.real_classes:
        raise BadInput(f"all items of {source} were removed: put some before they are exported")
    request = make_like_request(bundle)
    if renumber:
        request = renumber_sets(request, dense)
        dense, texts = drop_removed(dense, texts)
    dense = hash_numbers(dense)
    request = replace(
        limit_classes(request, dense.real_classes),
        labels=texts.labels,
        names=None if texts.names is None else Names.make(texts.names),
        threads=threads,
        item_position=overlay.position,
    )
    rows = contexts or Contexts(bundle.tensors(CALIBRATION_FILE)["contexts"])
    return export(dense, normalize_contexts(rows) if request.cosine else rows, out, request, progress)


def check_renumbering(bundle: Bundle) -> None:
    """Raise BadInput where something but the bundle itself knows its items by their ids."""
    if bundle.names() is None:
        raise BadInput(f"{bundle.folder} has no names, and its items are known by their ids: leave --renumber out")
    folder = bundle.folder.parent / SETS_FOLDER
    if list_set_names(folder):
        raise BadInput(f"{folder} holds sets of ids, of every version: leave --renumber out, or delete these sets")


def replay_changes(bundle: Bundle, path: Path) -> ItemOverlay:
    """The changes that a bundle does not hold yet; raises BadInput where there are none, BundleError for a gap."""
    overlay = ItemOverlay(bundle.manifest, bundle.names(), find_position(bundle.manifest))
    start = LogStart.read(path) if path.is_file() else None
    if start is None:
        raise BadInput(f"there is no log of changes at {path}: name the folder that --item-changes names")
    if start.position > overlay.position:
        raise BundleError(f"{path} begins after change {start.position}, and {bundle.folder} holds fewer")
    for record in read_records(path):
        batches = record.skip(overlay.position)
        if batches:
            overlay.apply(record.position, batches)
    if overlay.snapshot is None:
        raise BadInput(f"{path} holds no change that {bundle.folder} does not hold: there is nothing to do")
    return overlay


def list_names(bundle: Bundle) -> list[str] | None:
    """The names of a bundle's classes, None where it has none."""
    names = bundle.names()
    return None if names is None else [str(text) for text in names.read(np.arange(bundle.manifest.classes))]


def apply_changes(dense: Dense, texts: Texts, overlay: ItemOverlay) -> tuple[Dense, Texts]:
    """The layer and the texts with changes; an item that was removed is a row of zeros that is padding."""
    changes = overlay.snapshot
    assert changes is not None, "there are changes"
    classes, (items, rows) = overlay.classes, changes.sorted_items
    weight = np.zeros((classes, dense.dim), np.float32)
    weight[: dense.classes] = dense.weight
    weight[items] = changes.table.vectors[rows]
    padded = np.ones(classes, bool)
    padded[: dense.classes] = False
    padded[dense.padded], padded[changes.hidden[0]] = True, True
    padded[items] = False
    weight[padded] = 0
    layer = replace(dense, weight=weight, bias=change_bias(dense, overlay), padded=np.flatnonzero(padded))
    return layer, add_texts(texts, overlay)


def change_bias(dense: Dense, overlay: ItemOverlay) -> np.ndarray | None:
    """The biases with changes; None where neither the layer nor an item has any."""
    changes = overlay.snapshot
    assert changes is not None, "there are changes"
    items, rows = changes.sorted_items
    if dense.bias is None and not changes.table.biases[rows].any():
        return None
    bias = np.zeros(overlay.classes, np.float32)
    bias[: dense.classes] = 0 if dense.bias is None else dense.bias
    bias[items] = changes.table.biases[rows]
    return bias


def hash_numbers(dense: Dense) -> Dense:
    """The layer with the hash of its own numbers, which are float32: after changes no file that was given holds it."""
    digest = hashlib.sha256(np.ascontiguousarray(dense.weight).data)
    for part in (dense.bias, dense.padded):
        digest.update(b"" if part is None else part.tobytes())
    return replace(dense, dtype="float32", sha256=digest.hexdigest())


def add_texts(texts: Texts, overlay: ItemOverlay) -> Texts:
    """The texts with those of the items added: their names, which are also what is printed of them, else their ids."""
    added = range(overlay.base_classes, overlay.classes)
    names = [str(item) for item in added] if overlay.names is None else overlay.names.added
    labels = None if texts.labels is None else [*texts.labels, *names]
    return Texts(labels, None if texts.names is None else [*texts.names, *names])


def renumber_sets(request: Request, dense: Dense) -> Request:
    """The request with its sets by the ids that `drop_removed` gives."""
    ids = np.setdiff1d(np.arange(dense.classes), dense.padded)
    return replace(request, sets={name: np.flatnonzero(np.isin(ids, items)) for name, items in request.sets.items()})


def drop_removed(dense: Dense, texts: Texts) -> tuple[Dense, Texts]:
    """The layer and the texts without padding: the classes after it get lower ids."""
    kept = np.setdiff1d(np.arange(dense.classes), dense.padded)
    bias = None if dense.bias is None else dense.bias[kept]
    return replace(dense, weight=dense.weight[kept], bias=bias, padded=np.empty(0, np.int64)), texts.take(kept.tolist())
