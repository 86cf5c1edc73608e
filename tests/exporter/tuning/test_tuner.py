"""`shortlist tune`: real fits, the real runtime, contexts with a spectrum and documents."""

import json
from dataclasses import replace

import numpy as np
import pytest
import shortlist
from safetensors.numpy import save_file
from shortlist.bundle.reader import Bundle
from shortlist.cli.dispatch import main
from shortlist.errors import BadInput, VersionExists
from shortlist.evaluation.statistics import overlaps, share
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.l2s import change_probes
from shortlist_exporter.methods.registry import METHODS
from shortlist_exporter.methods.svd import change_full_view
from shortlist_exporter.records import tuning as records
from shortlist_exporter.tuning import search
from shortlist_exporter.tuning.bench import Bench
from shortlist_exporter.tuning.clock import Clock, OutOfTime
from shortlist_exporter.tuning.fits import Fits
from shortlist_exporter.tuning.pace import Pace
from shortlist_exporter.tuning.promises import margin, promise_of
from shortlist_exporter.tuning.search import RUNGS, Search
from shortlist_exporter.tuning.space import (
    SPACES,
    Build,
    builds,
    cascade_builds,
    chosen_methods,
    grouped_builds,
    l2s_builds,
    settings,
    svd_builds,
)
from shortlist_exporter.tuning.tuner import NoHead, TuneRequest, tune

from tests.support.layers import logprobs_of, make_contexts, make_dense, run_cli

CLASSES, DIM, ROWS, DOCUMENTS = 30_000, 96, 9000, 30


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


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def request_of(cache, pairs=PAIRS, promise=None, **rest):
    given = {"methods": ["svd"], "minutes": 5.0, "cache": cache} | rest
    return TuneRequest(promise_of(pairs, **(promise or {})), **given)


@pytest.fixture(scope="module")
def tuned(cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("repository") / "lm" / "1"
    return out, tune(dense, contexts, out, request_of(cache))


def test_the_promise_holds_on_fresh_rows_and_that_of_rejected_heads_does_not(tuned, tmp_path):
    out, record = tuned
    fresh = sample(2000, 99)
    truth = np.argsort(-(fresh @ dense.weight.T + dense.bias), axis=1)[:, :5]
    assert precision_of(out, fresh, truth[:, :1]).high >= 0.95
    assert precision_of(out, fresh, truth).high >= 0.9
    rejected = [trial for trial in record.trials if trial.tune.precision[1].high < 0.95]
    nearest = max(rejected, key=lambda trial: trial.tune.precision[1].mean)
    options = nearest.options | {name: str(value) for name, value in nearest.setting.items()}
    export(dense, contexts, tmp_path / "lm" / "1", Request(nearest.method, options, threads=1))
    assert precision_of(tmp_path / "lm" / "1", fresh, truth[:, :1]).low < 0.95


def precision_of(bundle, rows, truth):
    """Of the plan alone, which so many rows are not answered by, for as many classes as `truth` [n, k] has."""
    k = truth.shape[1]
    return share(overlaps(shortlist.load(bundle, threads=1).topk_by_plan(rows, k).ids, truth) / k)


def test_the_record_tells_all_and_stands_in_the_bundle(tuned):
    out, record = tuned
    assert records.read(out) == record
    chosen = record.trials[record.chosen]
    assert chosen.test.precision[1].low >= 0.95
    assert chosen.test.precision[5].low >= 0.9
    assert (record.fit.documents, record.tune.documents, record.test.documents) == (24, 3, 3)
    assert record.looks >= 1
    assert not record.interrupted
    assert [1 / trial.tune.speedup for trial in record.trials] == sorted(1 / t.tune.speedup for t in record.trials)
    assert {trial.rung for trial in record.trials} == set(range(len(RUNGS)))
    assert "keeps P@1 >= 0.95, P@5 >= 0.9" in record.sentence
    manifest = Bundle(out).manifest
    assert manifest.provenance["tune"] == json.loads(json.dumps(record.summary()))
    assert manifest.settings.full_view == chosen.setting["full_view"]
    assert manifest.quality.p_at_1 >= chosen.test.precision[1].mean, "ten classes are asked for at an export"
    assert manifest.quality.cost_macs == pytest.approx(chosen.cost_macs)
    assert manifest.quality.rows == chosen.test.rows == record.test.rows


def test_a_second_search_fits_nothing_again(tuned, cache, tmp_path, monkeypatch, steady):
    first = tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache))
    monkeypatch.setattr(type(METHODS["svd"]), "fit", lambda *_: pytest.fail("fitted again"))
    again = tune(dense, contexts, tmp_path / "lm" / "2", request_of(cache))
    assert again.trials[again.chosen] == first.trials[first.chosen]


def test_other_contexts_share_nothing(tuned, cache):
    before = set(cache.iterdir())
    others = replace(contexts, contexts=-contexts.contexts)
    with pytest.raises(NoHead):
        tune(dense, others, tuned[0].parent / "9", request_of(cache, minutes=1e-6))
    assert set(cache.iterdir()) - before


@pytest.fixture
def steady(monkeypatch):
    """Finalists' times by their full view, whatever else this machine does: for tests of what follows from them."""

    def raced(_, heads):
        views = [float(setting["full_view"]) for _, setting in heads]
        return [{"us": us, "us_p99": us, "dense_us": 1e4, "speedup": 1e4 / us} for us in views]

    monkeypatch.setattr(Bench, "raced", raced)


def only(monkeypatch, width, *values):
    """One head to fit and few settings."""
    options = {"basis": "context", "width": str(width)}
    monkeypatch.setitem(SPACES, "svd", replace(SPACES["svd"], builds=lambda _: [options], values=values))


def test_what_fails_on_test_gives_way_to_the_next_more_precise(cache, tmp_path, monkeypatch, steady):
    only(monkeypatch, 48, 16, 256)
    harder = Contexts(sample(2000, 5, floor=0.2))
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache), test=harder)
    looked = [trial for trial in record.trials if trial.test is not None]
    chosen = record.trials[record.chosen]
    assert record.looks == len(looked) > 1
    assert f"after {record.looks - 1} that failed on test" in record.sentence
    assert chosen.test.precision[1].low >= 0.95
    failed = [trial for trial in looked if trial is not chosen]
    assert all(trial.test.precision[1].low < 0.95 or trial.test.precision[5].low < 0.9 for trial in failed)
    by_margin = sorted(looked, key=lambda trial: margin(record.promise, trial.tune))
    assert by_margin[-1] is chosen


def test_no_head_keeps_it_and_dense_only_where_allowed(cache, tmp_path, monkeypatch, steady):
    only(monkeypatch, 24, 128, 256)
    asked, elsewhere, out = request_of(cache), Contexts(sample(2000, 6, floor=1.0)), tmp_path / "lm" / "1"
    with pytest.raises(NoHead, match=r"no head that is faster than dense keeps P@1 >= 0.95, P@5 >= 0.9; of") as caught:
        tune(dense, contexts, out, asked, test=elsewhere)
    assert "times dense: ask for less, or give --allow-dense to export dense, which always does" in str(caught.value)
    assert "on the test split" in str(caught.value)
    assert caught.value.record.chosen is None
    assert list(tmp_path.iterdir()) == []
    record = tune(dense, contexts, out, replace(asked, allow_dense=True), test=elsewhere)
    assert record.trials[record.chosen].method == Bundle(out).manifest.method == "full"
    assert record.trials[record.chosen].test.precision[1].mean > 0.999


def test_ctrl_c_keeps_the_best_so_far(tmp_path, monkeypatch, steady):
    whole, done = Search.sweep, []

    def sweep(self, number, fit, label):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(fit.build)
        whole(self, number, fit, label)

    monkeypatch.setattr(Search, "sweep", sweep)
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(tmp_path / "cache"))
    assert record.interrupted
    assert "heads of a search that was stopped" in record.sentence
    assert [(left.what, left.why) for left in record.left] == [("the search", "stopped by hand")]
    assert {trial.rung for trial in record.trials} == {0}
    chosen = record.trials[record.chosen]
    assert chosen.test.precision[1].low >= 0.95
    assert chosen.tune.rows == record.tune.rows, "what is chosen is measured on the whole tune split"


def test_the_budget_ends_a_fit(cache):
    clock = Clock(1e-9, lambda *_: None)
    with pytest.raises(OutOfTime):
        clock.during("l2s")("exact labels", 1, 2)


def test_a_slow_machine_takes_the_best_head_to_the_top(tmp_path, monkeypatch, steady):
    """With time for one head on all contexts, others are left out, whatever they would have cost."""
    spent, whole = [0.0], Fits.fitted

    def fitted(self, build, rows, progress):
        spent[0] += 40 * (rows / fewest) ** (np.log(2) / np.log(3))  # 40, 80 and 160 s
        return whole(self, build, rows, progress)

    monkeypatch.setattr(Fits, "fitted", fitted)
    monkeypatch.setattr(Clock, "spent", property(lambda _: spent[0]))
    monkeypatch.setattr(search, "FEW", 100)
    backwards = replace(SPACES["svd"], builds=lambda dense: few_builds(dense)[::-1])
    monkeypatch.setitem(SPACES, "svd", backwards)
    fewest = round(ROWS * 0.8 / 9)
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(tmp_path / "cache"))
    assert record.interrupted
    assert {dict(trial.options)["width"] for trial in record.trials} == {"48"}
    assert record.trials[record.chosen].rung == 2
    assert record.trials[record.chosen].fit_rows == record.fit.rows
    why = "what time is left is kept for a better head with all contexts: give more time"
    assert [left.why for left in record.left] == [why, why]


def test_what_a_rung_takes():
    pace, one, other = Pace([100, 300, 900]), Build("svd", (("width", "8"),)), Build("svd", (("width", "9"),))
    assert pace.expected(one, 0) == 0
    pace.note(one, 0, 10.0)
    assert pace.expected(other, 0) == 10
    assert pace.expected(Build("l2s"), 0) == 0
    assert [pace.expected(one, rung) for rung in (1, 2)] == [20, 40]
    assert pace.to_the_top(one) == 60
    pace.note(one, 1, 15.0)
    assert pace.to_the_top(one) == 30
    assert pace.expected(other, 1) == 15


def test_a_budget_too_small_for_any_head_says_so(cache, tmp_path):
    with pytest.raises(NoHead, match=r"no head was measured \(the time budget was spent\): give --time-budget more"):
        tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache, minutes=1e-6))
    assert list(tmp_path.iterdir()) == []


def test_batches_log_probabilities_and_memory_are_kept(cache, tmp_path, steady):
    promise = {"batch": 2, "logprob_error": 0.05, "memory": 3 * dense.weight.nbytes}
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache, promise=promise))
    chosen = record.trials[record.chosen]
    assert chosen.test.logprob_error_high <= 0.05
    assert chosen.bytes <= 3 * dense.weight.nbytes
    rows = sample(500, 98)
    top = shortlist.load(tmp_path / "lm" / "1", threads=1).topk(rows, 5)
    exact = np.take_along_axis(logprobs_of(dense, rows), top.ids, axis=1)
    assert np.abs(top.logprobs - exact).mean() < 0.06


def test_a_setting_equals_a_fit_with_it():
    small, rows = make_dense(), make_contexts(600).contexts
    given = {"basis": "context", "width": "6", "full_view": "30"}
    swept = change_full_view(METHODS["svd"].fit(small, rows, given, 0), small, rows, {"full_view": 50}, 0)
    direct = METHODS["svd"].fit(small, rows, given | {"full_view": "50"}, 0)
    assert (swept.settings, swept.fit, swept.cost) == (direct.settings, direct.fit, direct.cost)
    given = {"clusters": "6", "budget": "40", "rounds": "1", "epochs": "1", "second_probe": "0.2"}
    swept = change_probes(METHODS["l2s"].fit(small, rows, given, 0), small, rows, {"probes": 2}, 0)
    direct = METHODS["l2s"].fit(small, rows, given | {"probes": "2"}, 0)
    assert (swept.settings, swept.fit, swept.cost) == (direct.settings, direct.fit, direct.cost)
    np.testing.assert_array_equal(swept.module.tail.numpy(), direct.module.tail.numpy())


@pytest.mark.parametrize(
    ("method", "options"),
    [("svd", svd_builds), ("l2s", l2s_builds), ("cascade", cascade_builds), ("grouped", grouped_builds)],
)
def test_every_build_is_one_that_the_method_takes(method, options):
    small = make_dense()
    for build in options(small):
        fitted = METHODS[method].fit(small, make_contexts().contexts, build | quick(method), 0)
        assert SPACES[method].swept in fitted.settings.adjustable
    assert all(list(setting) == [SPACES[method].swept] for setting in settings(method, small))


def test_the_cost_of_grouped_is_that_of_what_is_previewed():
    fitted = METHODS["grouped"].fit(make_dense(3000), make_contexts().contexts, {}, 0)
    options = fitted.fit | fitted.settings.model_dump()
    more = SPACES["grouped"].cost(options | {"previewed": 2048}, make_dense(3000))
    assert more.macs > fitted.cost.macs
    assert more.bytes > fitted.cost.bytes
    assert SPACES["grouped"].cost(options, make_dense(3000)) == fitted.cost


def quick(method):
    return {"clusters": "4", "rounds": "0", "background": "0"} if method == "l2s" else {}


def test_methods_that_are_not_listed_take_part_with_their_defaults(monkeypatch):
    monkeypatch.delitem(SPACES, "l2s")
    assert chosen_methods([])[-1] == "l2s"
    assert [(build.method, build.options) for build in builds(["l2s"], dense)] == [("l2s", ())]
    assert settings("l2s", dense) == [{}]


def test_methods_trained_on_targets_are_left_out(monkeypatch):
    monkeypatch.setattr(type(METHODS["l2s"]), "reference", "self")
    assert "l2s" not in chosen_methods([])
    with pytest.raises(BadInput, match="method l2s is trained on targets"):
        chosen_methods(["l2s"])


ONES = np.ones((1000, DIM), np.float32)
BAD = {
    "no time left": (contexts, {"minutes": 0.0}, "the time budget is 0 minutes, which leaves no time"),
    "P@5 over max_k": (contexts, {"bundle": Request(max_k=3)}, "P@5 is asked for but the head is to answer k up to 3"),
    "unknown method": (contexts, {"methods": ["svm"]}, "there is no method 'svm'"),
    "too little memory": (contexts, {"promise": {"memory": 1 << 20}}, "1 MiB cannot hold even the weights, 11 MiB"),
    "dense or not": (contexts, {"allow_dense": True, "bundle": Request(keep_dense=False)}, "give one of --allow-dense"),
    "one row": (Contexts(np.tile(ONES, (9, 1))), {}, "the fit split is one context vector, 7,200 times over"),
    "one row to test": (
        Contexts(np.concatenate([contexts.contexts[:8000], ONES])),
        {},
        r"the test split has 1 distinct contexts, on which even flawless answers show no more than 0\.2\d+ of the 0.95",
    ),
    "few rows": (Contexts(contexts.contexts[:500]), {}, "the tune split has 50 distinct contexts"),
    "two documents": (replace(contexts, documents=documents // 15), {}, "contexts hold 2 documents, too few for fit"),
    "all of it": (contexts, {"pairs": [(1, 1.0)]}, r"flawless answers show no more than 0\.99\d+ of the 1 asked"),
    "another d": (Contexts(ONES[:, :3]), {}, "contexts have d = 3 but the weight has d = 96"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cache, tmp_path):
    given, rest, words = BAD[case]
    with pytest.raises(BadInput, match=words) as caught:
        tune(dense, given, tmp_path / "lm" / "1", request_of(cache, **rest))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_promises_that_contradict_each_other():
    with pytest.raises(BadInput, match=r"P@5 is asked to reach 0\.9 and 0\.95: give one of them"):
        promise_of([(5, 0.9), (5, 0.95)])
    with pytest.raises(BadInput, match="nothing is promised"):
        promise_of([])


def test_a_version_that_exists_is_refused_before_the_search(cache, tuned):
    with pytest.raises(VersionExists, match="immutable"):
        tune(dense, contexts, tuned[0], request_of(cache))


def test_promises_are_of_requests_for_k_classes_alone(tuned, cache, tmp_path, monkeypatch):
    only(monkeypatch, 24, 16)
    with pytest.raises(NoHead) as caught:
        tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache, [(1, 0.95), (50, 0.1)]))
    (trial,) = caught.value.record.trials
    assert trial.tune.scored == 200, "fifty classes are searched for among 200"
    assert trial.tune.precision[1].mean < 0.85, "and one among 16"


def test_command(tuned, tmp_path, cache, capsys):
    save_file({"weight": dense.weight, "bias": dense.bias}, tmp_path / "w.safetensors")
    save_file({"contexts": contexts.contexts, "documents": documents}, tmp_path / "c.safetensors")
    files = ["--weights", tmp_path / "w.safetensors", "--contexts", tmp_path / "c.safetensors", "--threads", 1]
    asked = ["--target-p1", 0.95, "--target-pk", "5=0.9", "--cache", cache, "--methods", "svd"]
    out = tmp_path / "lm" / "1"
    assert main([str(word) for word in ["tune", *files, *asked, "--out", out]]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" chosen") == 1
    assert "is the fastest of" in printed
    assert records.read(out).promise == tuned[1].promise
    assert main(["check", str(out)]) == 0
    done = run_cli("tune", *files, *asked, "--out", tmp_path / "lm" / "2", "--time-budget", 0)
    assert (done.returncode, done.stderr.count("leaves no time")) == (1, 1)
    assert not (tmp_path / "lm" / "2").exists()
