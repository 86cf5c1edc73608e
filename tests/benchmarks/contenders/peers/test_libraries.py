"""Every peer, at its most thorough, finds what the dense layer finds."""

import subprocess
import sys

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.truth import compute_best
from benchmarks.contenders.registry import LIBRARY_PEERS
from tests.support.contenders import check_possible, fit_contender, pick_builds

pytestmark = pytest.mark.slow

EXACT = {"faiss flat": 0.999, "scann int8": 0.99}
SMALL = {"construction": 200}  # the largest graphs would take minutes


def layer(classes=2000, dim=32, bias=True):
    random = np.random.default_rng(0)
    weight = random.standard_normal((classes, dim)) * np.exp(0.1 * random.standard_normal((classes, 1)))
    weight[5] = weight[-1] = 1e3  # padding that would win
    offsets = random.standard_normal(classes).astype(np.float32) if bias else None
    mix = random.standard_normal((dim, dim)) * np.geomspace(1, 0.1, dim)
    contexts = (random.standard_normal((1500, dim)) @ mix.T).astype(np.float32)
    return Dense(weight.astype(np.float32), offsets, padded=np.array([5, classes - 1])), contexts


def label(build):
    codes = build["codes"] if build.get("codes") in ("Flat", "SQ8", "PQ") else ""  # of IVF, whose parts differ by them
    return ", ".join(part for part in (build["basis"], "lifted" * build.get("lift", False), codes) if part)


CASES = [
    pytest.param(kind, build, id=f"{kind.name}, {label(build)}")
    for kind in LIBRARY_PEERS
    for build in pick_builds(kind, layer()[0], label).values()
]


def fit(kind, build, dense, contexts):
    for library in kind.needs:
        pytest.importorskip(library, reason=f"{library} is not installed: extra `peers`")
    return fit_contender(kind, {**build, **{name: SMALL[name] for name in SMALL if name in build}}, dense, contexts)


@pytest.mark.parametrize(("kind", "build"), CASES)
def test_the_most_thorough_setting_finds_the_exact_top_five(kind, build):
    dense, contexts = layer()
    contender = fit(kind, build, dense, contexts[:1000])
    rows = contexts[1000:1300]
    contender.use(contender.settings()[-1])
    single = np.concatenate([contender.topk(row[None], 5) for row in rows])
    check_possible(single, dense)
    true = compute_best(dense, rows).ids[:, :5]
    least = EXACT.get(kind.name, 0.95)
    assert (single[:, :, None] == true[:, None, :]).any(axis=1).mean() >= least
    assert (single[:, 0] == true[:, 0]).mean() >= least
    batch = contender.topk(rows, 5)
    assert (batch == single).mean() > 0.99
    assert contender.size() > 0


@pytest.mark.parametrize(("kind", "build"), CASES)
def test_every_setting_answers_only_what_is_possible_on_a_tiny_layer(kind, build):
    dense, contexts = layer(classes=300, dim=33, bias=False)
    contender = fit(kind, pick_builds(kind, dense, label)[label(build)], dense, contexts)
    for setting in contender.settings():
        contender.use(setting)
        for k in (1, 400):
            result = contender.topk(contexts[:3], k)
            assert result.shape == (3, k)
            check_possible(result, dense)
    assert (contender.topk(contexts[:3], 1) >= 0).all()


@pytest.mark.parametrize("kind", LIBRARY_PEERS, ids=lambda kind: kind.name)
def test_two_threads_answer_as_one_does(kind):
    dense, contexts = layer()
    contender = fit(kind, kind.grid(dense)[0], dense, contexts)
    contender.use(contender.settings()[-1])
    alone = contender.topk(contexts[:64], 5)
    contender.threads = 2
    assert (contender.topk(contexts[:64], 5) == alone).mean() > 0.99


def test_libraries_are_imported_only_to_fit():
    libraries = {library for kind in LIBRARY_PEERS for library in kind.needs}
    code = f"import sys, benchmarks.contenders.registry; sys.exit(bool({libraries} & set(sys.modules)))"
    assert libraries == {"faiss", "scann", "hnswlib", "usearch"}
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
