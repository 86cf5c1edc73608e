"""`synthetic`: a made-up layer of any size, spectrum of contexts and spread of weight norms."""

from __future__ import annotations

import hashlib

import numpy as np
from pydantic import BaseModel, ConfigDict
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.common.truth import load_truth

from .base import DataSet, Place


class Shape(BaseModel):
    """`--set` options. decay: the last axis' standard deviation over the first's. spread: of log norms of weights."""

    model_config = ConfigDict(extra="forbid")

    classes: int = 20_000
    dim: int = 128
    rows: int = 20_000
    decay: float = 0.01
    spread: float = 0.3
    seed: int = 0


def load(place: Place) -> DataSet:
    """Gaussian weights of log-normal norms; Gaussian contexts of a geometric spectrum, rotated at random."""
    shape = Shape.model_validate(place.options or {})
    key = hashlib.sha256(shape.model_dump_json().encode()).hexdigest()
    random = np.random.default_rng(shape.seed)
    norms = np.exp(random.normal(0, shape.spread, (shape.classes, 1)))
    weight = (random.standard_normal((shape.classes, shape.dim)) * norms).astype(np.float32)
    rotation = np.linalg.qr(random.standard_normal((shape.dim, shape.dim)))[0]
    scales = np.geomspace(1, shape.decay, shape.dim)[:, None] * rotation
    contexts = (random.standard_normal((shape.rows, shape.dim)) @ scales).astype(np.float32)
    dense = Dense(weight, random.normal(0, 0.5, shape.classes).astype(np.float32), sha256=key)
    test_rows = shape.rows // 5
    fit = Contexts(contexts[test_rows:], sha256=key)
    truth = load_truth(place.cache / "synthetic" / f"{key[:16]}.safetensors", dense, contexts[:test_rows], None)
    return DataSet(f"synthetic {shape.classes:,} x {shape.dim}", dense, fit, truth)
