"""A layer, contexts with a spectrum and documents, and one real search over a few heads."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.tuning.bench import Bench
from shortlist_exporter.tuning.promises import make_promise
from shortlist_exporter.tuning.space import (
    SPACES,
)
from shortlist_exporter.tuning.tuner import TuneRequest, tune

from tests.support.layers import make_dense

CLASSES, DIM, ROWS, DOCUMENTS = 8_000, 96, 9000, 30


def sample(rows, seed, floor=0.1):
    """Contexts of one source: a geometric spectrum down to `floor`, along random directions."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]
    scales = np.geomspace(1, floor, DIM)[:, None] * rotation
    return (np.random.default_rng(seed).standard_normal((rows, DIM)) @ scales).astype(np.float32)


dense = replace(make_dense(CLASSES, DIM, bias=np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32) / 5))


documents = np.repeat(np.arange(DOCUMENTS), ROWS // DOCUMENTS).astype(np.int32)


contexts = Contexts(sample(ROWS, 1), documents=documents)


PAIRS = [(1, 0.95), (5, 0.9)]


def few_builds(dense):
    """Heads that miss much, little and nothing, so that tests take less time."""
    return [{"basis": "context", "width": str(width)} for width in (16, 24, 48)]


@pytest.fixture(scope="module", autouse=True)
def few_heads():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SPACES, "svd", replace(SPACES["svd"], builds=few_builds, values=(16, 64, 256)))
        yield


@pytest.fixture(scope="module", autouse=True)
def steady_times():
    """Everything is timed as ever; then its time is its full view, whatever else this machine does."""
    measure, race = Bench.measure, Bench.race

    def name_times(setting):
        us = float(setting.get("full_view", 16))
        return {"us": us, "us_p99": us, "dense_us": 1e4, "speedup": 1e4 / us}

    def measure_steadily(bench, fit, setting, split, rows):
        return measure(bench, fit, setting, split, rows).model_copy(update=name_times(setting))

    def race_steadily(bench, heads):
        times = race(bench, heads)
        return [times_of_head | name_times(setting) for times_of_head, (_, setting) in zip(times, heads, strict=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "measure", measure_steadily)
        patch.setattr(Bench, "race", race_steadily)
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def request_of(cache, pairs=PAIRS, promise=None, **rest):
    fields = {"methods": ["svd"], "minutes": 5.0, "cache": cache} | rest
    return TuneRequest(make_promise(pairs, **(promise or {})), **fields)


@pytest.fixture(scope="module")
def tune_result(cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("repository") / "lm" / "1"
    return out, tune(dense, contexts, out, request_of(cache))


def only(monkeypatch, width, *values):
    """One head to fit and few settings."""
    options = {"basis": "context", "width": str(width)}
    monkeypatch.setitem(SPACES, "svd", replace(SPACES["svd"], builds=lambda _: [options], values=values))
