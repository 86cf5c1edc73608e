"""Layers with padding for contenders, and what no contender may answer."""

import numpy as np
from shortlist_exporter.inputs.sources import Dense


def padding_of(classes):
    return np.unique([min(5, classes - 2), classes - 1])


def make_fading_layer(classes=1000, dim=16, bias=True):
    """Rows and contexts whose axes fade, two rows of padding that would win, contexts to fit."""
    random = np.random.default_rng(0)
    fade = np.geomspace(1, 0.1, dim)
    weight = random.standard_normal((classes, dim)) * fade
    weight[padding_of(classes)] = 1e3
    offsets = (0.3 * random.standard_normal(classes)).astype(np.float32) if bias else None
    contexts = (random.standard_normal((1200, dim)) * fade).astype(np.float32)
    return Dense(weight.astype(np.float32), offsets, padded=padding_of(classes)), contexts


def pick_builds(kind, dense, label=lambda build: build["basis"]):
    """The first build of every label, by default one for every basis."""
    return {label(build): build for build in reversed(kind.grid(dense))}


def fit_contender(kind, build, dense, contexts):
    contender = kind(build, threads=1)
    contender.fit(dense, contexts)
    return contender


def check_possible(ids, dense):
    """Ids [n, k] are classes, no padding, none twice in a row; -1 stands at the end alone."""
    assert ids.dtype == np.int64
    assert ((ids >= -1) & (ids < dense.classes)).all()
    assert not np.isin(ids, dense.padded).any()
    for row in ids:
        real = row[row >= 0]
        assert len(set(real)) == len(real)
        assert (row[len(real) :] == -1).all()
