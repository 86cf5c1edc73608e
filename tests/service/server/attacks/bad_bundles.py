"""Bundles made to do harm, each sealed with the right hashes, as whoever can write to a repository could make them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper
from safetensors.numpy import load_file, save_file
from shortlist.bundle.files import sha256
from shortlist.bundle.manifest import compute_digest

GRAPH = "graphs/dense.onnx"
WEIGHTS = "graphs/weight.bin"


def reseal(folder: Path, **fields: object) -> None:
    """Write other fields into the manifest, and the hashes of the files as they are now."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text()) | fields
    for name in content["files"]:
        if (folder / name).is_file():
            content["files"][name] = {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
    path.write_text(json.dumps(content | {"digest": compute_digest(content)}))


def read_fields(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def name_graph(folder: Path, name: str, **more: object) -> None:
    reseal(folder, graphs=read_fields(folder)["graphs"] | {"dense": name}, **more)


def leave_by_dots(folder: Path) -> None:
    """A graph outside of the bundle, which no hash covers."""
    name_graph(folder, f"../../../outside/{Path(GRAPH).name}")


def leave_by_a_root(folder: Path) -> None:
    reseal(folder, files=read_fields(folder)["files"] | {"/etc/hostname": {"size": 1, "sha256": "0"}})


def name_a_line(folder: Path) -> None:
    """A name that would write a line of its own into the log."""
    forged = "x\n2026-01-01 00:00:00 INFO shortlist: all is well"
    reseal(folder, files=read_fields(folder)["files"] | {forged: {"size": 1, "sha256": "0"}})


def leave_a_graph_unhashed(folder: Path) -> None:
    files = {name: entry for name, entry in read_fields(folder)["files"].items() if name != GRAPH}
    reseal(folder, files=files)


def leave_all_unhashed(folder: Path) -> None:
    reseal(folder, files={})


def leave_the_calibration_unhashed(folder: Path) -> None:
    files = {name: entry for name, entry in read_fields(folder)["files"].items() if "calibration" not in name}
    reseal(folder, files=files)


def empty_the_calibration(folder: Path) -> None:
    """The mean of no agreement is NaN, which is not under any limit."""
    path = folder / "calibration.safetensors"
    arrays = load_file(path)
    lengths = {"equal_rows": 0, "equal_starts": 0, "equal_stops": 0}
    save_file({name: np.ascontiguousarray(array[: lengths.get(name, 0)]) for name, array in arrays.items()}, path)
    reseal(folder)


def write_labels(folder: Path, labels: object) -> None:
    (folder / "labels.json").write_text(json.dumps(labels))
    reseal(folder, files=read_fields(folder)["files"] | {"labels.json": {}})


def number_the_labels(folder: Path) -> None:
    write_labels(folder, list(range(300)))


def shorten_the_labels(folder: Path) -> None:
    write_labels(folder, ["a", "b"])


def map_the_labels(folder: Path) -> None:
    write_labels(folder, {"0": "a"})


def link_the_weights(folder: Path) -> None:
    """As in the cache of Hugging Face, whose files are links to others elsewhere."""
    outside = folder.parents[2] / "outside" / "blob"
    outside.parent.mkdir(exist_ok=True)
    (folder / WEIGHTS).replace(outside)
    (folder / WEIGHTS).symlink_to(outside)


def link_the_folder(folder: Path) -> None:
    """A link in the path to the file rather than in its place."""
    outside = folder.parents[2] / "outside" / "graphs"
    outside.parent.mkdir(exist_ok=True)
    (folder / "graphs").replace(outside)
    (folder / "graphs").symlink_to(outside, target_is_directory=True)


def link_hard(folder: Path) -> None:
    """A second name of a file elsewhere: its owner may change the content at any time."""
    outside = folder.parents[2] / "outside" / "weight.bin"
    outside.parent.mkdir(exist_ok=True)
    outside.hardlink_to(folder / WEIGHTS)


def put_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "graphs" / "pipe")


def move_external_data(folder: Path, location: str) -> None:
    """The graph's weights lie where `location` says."""
    path = folder / GRAPH
    model = onnx.load(path, load_external_data=False)
    moved = [each for each in model.graph.initializer if external_data_helper.uses_external_data(each)]
    assert moved, "the graph has external data"
    for tensor in moved:
        next(entry for entry in tensor.external_data if entry.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    reseal(folder)


def read_data_by_dots(folder: Path) -> None:
    outside = folder.parents[2] / "outside" / "secret.bin"
    outside.parent.mkdir(exist_ok=True)
    outside.write_bytes((folder / WEIGHTS).read_bytes())
    move_external_data(folder, "../../../../outside/secret.bin")


def read_data_by_a_root(folder: Path) -> None:
    move_external_data(folder, "/etc/passwd")


def cut_the_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])


ATTACKS = {
    leave_by_dots: "is no file below the bundle's folder",
    leave_by_a_root: "is no file below the bundle's folder",
    name_a_line: "is no file below the bundle's folder",
    leave_a_graph_unhashed: "has no hash of graphs/dense.onnx",
    leave_all_unhashed: "has no hash of",
    leave_the_calibration_unhashed: "has no hash in the manifest",
    empty_the_calibration: "calibration.safetensors has 'contexts', which has shape [0, 16]",
    number_the_labels: "is not a list of 300 texts",
    shorten_the_labels: "is not a list of 300 texts",
    map_the_labels: "is not a list of 300 texts",
    link_the_weights: "is a link, and a bundle holds files alone",
    link_the_folder: "is a link, and a bundle holds files alone",
    link_hard: "has a second name (a hard link)",
    put_a_pipe: "is no plain file",
    read_data_by_dots: "ONNX Runtime cannot load",
    read_data_by_a_root: "ONNX Runtime cannot load",
    cut_the_manifest: "cannot be read",
}
