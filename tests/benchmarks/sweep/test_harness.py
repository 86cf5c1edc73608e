"""The harness shows every planted liar for what it is."""

from typing import ClassVar

import numpy as np
import pytest
from shortlist.evaluation import timing
from threadpoolctl import ThreadpoolController

from benchmarks.common.runs import Store
from benchmarks.contenders.dense.numpy_dense import NumpyDense
from benchmarks.contenders.registry import Contender
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.sweep.harness import NUMPY_BLAS_PREFIX, Harness, limit_threads
from tests.support.clock import Clock

pytestmark = pytest.mark.slow

CLASSES = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    options = {"classes": str(CLASSES), "dim": "64", "rows": "3000"}
    return DATASETS["synthetic"](Place(tmp_path_factory.mktemp("cache"), options=options))


clock = Clock()
DENSE_SECONDS, OWN_SECONDS, MEMORY_SECONDS = 1e-3, 3e-4, 1e-6


@pytest.fixture
def harness(data, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "time", clock)
    harness = Harness(data, Store(tmp_path), rows=400)
    dense = harness.choose_dense_call(1)

    def pass_time(rows):
        clock.now += DENSE_SECONDS
        return dense(rows)

    harness.dense[1] = pass_time
    return harness


class ConstantContender(NumpyDense):
    """Dense in numpy, with one build."""

    @classmethod
    def grid(cls, dense):
        return [{"layout": "columns"}]

    def topk(self, contexts, k):
        clock.now += OWN_SECONDS
        return super().topk(contexts, k)


class Honest(ConstantContender):
    name = "honest"


class Random(ConstantContender):
    name = "answers at random"

    def topk(self, contexts, k):
        clock.now += OWN_SECONDS
        return np.stack([np.random.default_rng().choice(CLASSES, k, replace=False) for _ in contexts])


class Remembering(ConstantContender):
    """Answers again from memory, even for rows that are nearly the same."""

    name = "remembers"

    def fit(self, dense, contexts):
        super().fit(dense, contexts)
        self.memory = {}

    def topk(self, contexts, k):
        key = (contexts.tobytes(), k)
        clock.now += MEMORY_SECONDS
        if key not in self.memory:
            self.memory[key] = super().topk(contexts, k)
        return self.memory[key]


class Twice(ConstantContender):
    name = "answers one class twice"

    def topk(self, contexts, k):
        return np.repeat(super().topk(contexts, 1), k, axis=1)


class OutOfRange(ConstantContender):
    name = "answers no class"

    def topk(self, contexts, k):
        return super().topk(contexts, k) + CLASSES


class Broken(ConstantContender):
    name = "broken"

    def fit(self, dense, contexts):
        raise RuntimeError("no index for you")


class Absent(ConstantContender):
    name = "absent"
    needs = ("a_library_that_nobody_has",)


class SilentlyDense(Contender):
    """Calls the very dense head that it is compared with, and does not tell."""

    name = "dense in disguise"
    call = None

    @classmethod
    def grid(cls, dense):
        return [{}]

    def fit(self, dense, contexts):
        pass

    def topk(self, contexts, k):
        return self.call(contexts)

    def size(self):
        return 0


def only_run(harness, kind):
    (run,) = harness.sweep(kind, kind.grid(harness.data.dense)[0])
    return run


def test_an_honest_contender_is_precise_and_unflagged_for_memory(harness):
    run = only_run(harness, Honest)
    assert run.error is None
    assert run.precision[1].value == 1.0
    assert run.precision[1].low < 1.0
    assert not any("remembers" in flag for flag in run.flags)


def test_random_answers_have_no_precision(harness):
    run = only_run(harness, Random)
    assert run.precision[1].high < 0.05
    assert run.precision[5].high < 0.05


def test_remembered_answers_are_not_timed_and_are_flagged(harness):
    honest, run = only_run(harness, Honest), only_run(harness, Remembering)
    assert any("remembers answers" in flag for flag in run.flags)
    assert run.spent[1].median > honest.spent[1].median / 2


def test_a_silently_dense_contender_shows_as_slow_as_dense(harness, monkeypatch):
    monkeypatch.setattr(SilentlyDense, "call", staticmethod(harness.choose_dense_call(1)))
    run = only_run(harness, SilentlyDense)
    assert run.precision[1].value == 1.0
    assert run.spent[1].speedup == pytest.approx(1.0)
    assert any("as slow as dense" in flag for flag in run.flags)


class Effort(ConstantContender):
    """Settings that cost more and more."""

    name = "effort"
    done: ClassVar = []

    def settings(self):
        return [{"probes": probes, "refined": refined} for probes in (1, 2, 40) for refined in (1, 2)]

    def topk(self, contexts, k):
        clock.now += DENSE_SECONDS * self.setting["probes"] * self.setting["refined"] / 3
        return NumpyDense.topk(self, contexts, k)

    def use(self, setting):
        self.setting = setting
        self.done.append(setting)


def test_settings_dearer_than_one_far_slower_than_dense_are_left_out(harness, monkeypatch):
    monkeypatch.setattr(Effort, "done", [])
    runs = list(harness.sweep(Effort, {"layout": "columns"}))
    settings = [(setting["probes"], setting["refined"]) for setting in Effort.done]
    assert settings == [(1, 1), (1, 2), (2, 1), (2, 2), (40, 1)]
    assert [run.setting for run in runs] == Effort.done
    again = list(harness.sweep(Effort, {"layout": "columns"}))
    assert [run.setting for run in again] == [run.setting for run in runs]
    assert len(Effort.done) == len(runs), "a second sweep reads what is on disk"


def test_a_head_that_tells_of_its_dense_answers_is_reported(harness):
    class Telling(ConstantContender):
        name = "tells"

        def count_candidates(self, contexts, k):
            return np.full(len(contexts), CLASSES, np.int32)

    assert only_run(harness, Telling).dense_share == 1.0


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Twice, "the same class twice"),
        (OutOfRange, "no class"),
        (Broken, "no index for you"),
        (Absent, "a_library_that_nobody_has is not installed"),
    ],
)
def test_what_fails_is_a_row_that_says_so(harness, kind, sentence):
    run = only_run(harness, kind)
    assert sentence in run.error
    assert not run.precision


def test_a_finished_build_is_read_and_not_fitted_again(harness, monkeypatch):
    first = only_run(harness, Honest)
    monkeypatch.setattr(Honest, "fit", Broken.fit)
    assert only_run(harness, Honest) == first


def test_another_build_is_another_run(harness):
    class Other(Honest):
        pass

    first = only_run(harness, Other)
    (second,) = harness.sweep(Other, {"layout": "rows"})
    assert first.build != second.build
    assert len(harness.store.runs()) == 2


@pytest.mark.parametrize("own", [False, True])
def test_threads_of_numpy_do_not_take_the_place_of_a_peers(own):
    blas = ThreadpoolController().select(prefix=NUMPY_BLAS_PREFIX)
    if not blas.lib_controllers:
        pytest.skip("this numpy has another library for its products")
    with limit_threads(2, own_threads=own):
        assert [library.num_threads for library in blas.lib_controllers] == [1 if own else 2]
