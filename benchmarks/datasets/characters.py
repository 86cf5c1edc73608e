"""`characters`: 3,755 Chinese characters, equally frequent. Contexts are a small network's features.

`--set fonts=FILE,FILE:INDEX` draws them in other faces than `benchmarks.datasets.rendered.glyphs.FACES`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from shortlist.errors import BadInput
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.progress import Progress

from benchmarks.common.truth import load_truth
from benchmarks.datasets.rendered.glyphs import (
    Face,
    draw_glyphs,
    find_faces,
    fingerprint_faces,
    list_characters,
    parse_faces,
)
from benchmarks.datasets.rendered.network import Training, encode_images, train_reader

from .base import DataSet, Place

FIT_EACH, TEST_EACH = 20, 10  # images of every character
FIT_IMAGES_SEED, TEST_IMAGES_SEED = 2**40, 2**40 + 1  # training takes the numbers of its steps
CHARACTER_OPTIONS = {"fonts", "steps"}


def load(place: Place) -> DataSet:
    """Fit and test on images of their own; the network saw neither, and learnt on others of the same faces."""
    options = place.options or {}
    if unknown := set(options) - CHARACTER_OPTIONS:
        raise BadInput(f"data set characters has no option {', '.join(sorted(unknown))}: give fonts or steps")
    faces = parse_faces(options["fonts"]) if "fonts" in options else find_faces()
    training = Training(steps=int(options.get("steps", Training.steps)))
    key = hashlib.sha256(f"{fingerprint_faces(faces)} {training}".encode()).hexdigest()[:16]
    folder = place.cache / "characters" / key
    if not (folder / "test.safetensors").is_file():
        with progress_bar("characters") as report:
            train_and_write(folder, faces, training, report)
    head, fit, test = (load_file(folder / f"{part}.safetensors") for part in ("head", "fit", "test"))
    dense = Dense(head["weight"].numpy(), head["bias"].numpy(), sha256=key)
    truth = load_truth(folder / "exact.safetensors", dense, test["contexts"].numpy(), test["targets"].numpy())
    return DataSet("characters", dense, Contexts(fit["contexts"].numpy(), fit["targets"].numpy(), sha256=key), truth)


def train_and_write(folder: Path, faces: list[Face], training: Training, report: Progress) -> None:
    """Train the network, which goes on from its checkpoint, and write its last layer and both sets of contexts."""
    folder.mkdir(parents=True, exist_ok=True)
    report("drawing characters", 0, 1)
    glyphs = torch.from_numpy(draw_glyphs(faces, list_characters()))
    reader = train_reader(glyphs, training, folder / "reader.pt", report)
    save_file({"weight": reader.out.weight.data, "bias": reader.out.bias.data}, folder / "head.safetensors")
    # Contexts of test come last: where they are, everything is.
    for part, each, seed in (("fit", FIT_EACH, FIT_IMAGES_SEED), ("test", TEST_EACH, TEST_IMAGES_SEED)):
        contexts, targets = encode_images(reader, glyphs, each, seed, report)
        save_file({"contexts": contexts, "targets": targets}, folder / f"{part}.safetensors")
