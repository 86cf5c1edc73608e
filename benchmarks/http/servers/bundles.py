"""Bundles to serve: small ones, exported once into the cache, or one that is given."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import FORMAT_VERSION, MANIFEST_FILE
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.bundle.writer import seal
from shortlist.core.results import FloatArray
from shortlist.errors import NotFound

MODEL_NAME = "lm"
CONSTANT_SHAPE = (1_000, 576)  # classes, dim of the bundle whose compute is replaced
SYNTHETIC_SHAPE = (20_000, 128)
FITTED_CONTEXTS = 4_096  # contexts that heads are fitted on
SPECTRUM_DECAY = 0.05  # the last axis' standard deviation over the first's


def make_constant_bundle(cache: Path) -> Path:
    """A full head of 1,000 classes by 576."""
    return export_once(cache / "constant", *CONSTANT_SHAPE, "full", {})


def make_synthetic_bundle(cache: Path) -> Path:
    """An SVD head of 20,000 classes by 128, with its dense layer."""
    return export_once(
        cache / "synthetic", *SYNTHETIC_SHAPE, "svd", {"basis": "context", "width": "32", "full_view": "200"}
    )


def export_once(folder: Path, classes: int, dim: int, method: str, options: dict[str, str]) -> Path:
    """The bundle lm/1 of the present format below `folder`, exported where it is missing."""
    out = folder / f"format-{FORMAT_VERSION}" / MODEL_NAME / "1"
    if not (out / MANIFEST_FILE).is_file():
        # torch takes seconds to import, and is not needed where the bundle is there
        from shortlist_exporter.export.request import Request
        from shortlist_exporter.export.run import export
        from shortlist_exporter.inputs.sources import Contexts, Dense

        random = np.random.default_rng(0)
        weight = random.standard_normal((classes, dim)).astype(np.float32)
        contexts = (random.standard_normal((FITTED_CONTEXTS, dim)) * np.geomspace(1, SPECTRUM_DECAY, dim)).astype(
            np.float32
        )
        request = Request(method, options, fallback=False, threads=1)
        export(Dense(weight), Contexts(contexts), out, request)
    return out


def resolve_bundle(bundle: Path) -> Path:
    """`bundle` as an absolute path; raises NotFound where no bundle is there."""
    if not (bundle / MANIFEST_FILE).is_file():
        raise NotFound(f"there is no bundle at {bundle}: give <repository>/<name>/<version>")
    return bundle.resolve()


def link_alone(bundle: Path, folder: Path) -> Path:
    """A repository in `folder` that holds this bundle alone."""
    name = folder / bundle.parent.name
    name.mkdir(parents=True)
    (name / bundle.name).symlink_to(bundle, target_is_directory=True)
    return folder


def copy_without_certificate(bundle: Bundle, folder: Path) -> Path:
    """A copy <folder>/<name>/<version> whose exact answers are the dense layer's own, since nothing proves others."""
    manifest = bundle.manifest
    out = folder / manifest.name / str(manifest.version)
    shutil.copytree(bundle.folder, out)
    (out / MANIFEST_FILE).unlink()
    graphs = {role: path for role, path in manifest.graphs.items() if role != "bounds"}
    seal(out, manifest.model_copy(update={"graphs": graphs, "certificate": None, "exact_plan": None}))
    return out


def read_contexts(bundle: Path, rows: int) -> FloatArray:
    """Up to `rows` contexts [n, d] of the bundle's calibration."""
    contexts: FloatArray = Bundle(bundle, verify=False).tensors(CALIBRATION_FILE)["contexts"][:rows]
    return contexts
