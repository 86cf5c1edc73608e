"""Rows are asked again on a real server: counted, shown, exported, and acted on where they are worse than promised."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import shortlist
from prometheus_client.parser import text_string_to_metric_families
from shortlist.evaluation.answers import judge_answers

from tests.support.heads import grouped
from tests.support.layers import RunningServer, contexts_elsewhere, make_contexts, make_dense, make_head
from tests.support.servers.swaps import put_version

pytestmark = pytest.mark.slow

CONTEXTS = make_contexts(rows=3000, seed=1)
ROWS = CONTEXTS.contexts[1000:]
OTHERS = contexts_elsewhere(CONTEXTS.contexts[:400], 400)
OPTIONS = {"basis": "context", "width": "8", "full_view": "60"}
ALL = ("--precision-share", "1", "--precision-cpu", "1", "--threads", "1")
WAIT_SECONDS = 60.0
FALLEN, REPLAY_K = 0.97, 4  # of which P@1 alone is counted


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A head that finds the best class of nearly all rows like those it was fitted on."""
    return make_head(tmp_path_factory.mktemp("seen"), make_dense(), CONTEXTS, options=OPTIONS).folder


def ask(server, rows, k=5, batch=20, model="lm"):
    with shortlist.Client(server.url) as client:
        for start in range(0, len(rows), batch):
            client.topk(model, rows[start : start + batch], k)


def show(server, name="lm"):
    return server.http.get(f"/v1/models/{name}").json()["served_precision"]


def wait_until(is_so, what):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def ask_and_wait(server, rows, **options):
    """Ask in portions that all fit the queue of rows to be asked again."""
    before = (show(server) or {"rows": 0})["rows"]
    for start in range(0, len(rows), 200):
        part = rows[start : start + 200]
        ask(server, part, **options)
        wait_until(lambda: (show(server) or {"rows": 0})["rows"] >= before + start + len(part), show(server))  # noqa: B023


def read_series(server):
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("shortlist_precision")
    }


def test_figures_are_those_of_the_head(bundle):
    head = shortlist.load(bundle, threads=1)
    top, exact = head.topk(ROWS[:400], 5), head.topk(ROWS[:400], 5, exact=True)
    hits = (top.ids[:, 0] == exact.ids[:, 0]).sum()
    shares = [len(set(ids) & set(true)) / 5 for ids, true in zip(top.ids.tolist(), exact.ids.tolist(), strict=True)]
    with RunningServer(bundle.parents[1], *ALL) as server:
        assert show(server) is None
        ask_and_wait(server, ROWS[:200])
        ask_and_wait(server, ROWS[200:400], batch=1)
        shown, series = show(server), read_series(server)
    place = (("model", "lm"), ("version", "1"))
    assert shown["rows"] == shown["at"]["1"]["trials"] == 400
    assert shown["share"] == 1
    assert shown["at"]["1"]["hits"] == hits
    assert shown["at"]["5"]["hits"] == pytest.approx(sum(shares))
    assert (shown["alarm"], shown["exact_answers"]) == (False, False)
    assert series["shortlist_precision_hits_total", ("k", "1"), *place] == hits
    assert series["shortlist_precision_trials_total", ("k", "5"), *place] == 400
    assert series["shortlist_precision_rows_total", place[0], ("outcome", "measured"), place[1]] == 400
    assert series["shortlist_precision_share", *place] == 1
    assert series["shortlist_precision_alarm", ("k", "1"), *place] == 0
    figure = series["shortlist_precision", ("bound", "mean"), ("k", "1"), *place]
    assert figure == pytest.approx(hits / 400)
    assert series["shortlist_precision_promise", ("k", "1"), *place] == shown["at"]["1"]["promise"]


def test_by_default_one_row_of_a_hundred(bundle):
    with RunningServer(bundle.parents[1], "--precision-cpu", "1", "--threads", "1") as server:
        ask(server, np.tile(ROWS, (5, 1)), batch=400)
        wait_until(lambda: show(server), "nothing was asked again")
        wait_until(lambda: show(server)["rows"] == 100, show(server))
        assert show(server)["share"] == 0.01


def test_a_setting_switches_it_off(bundle):
    with RunningServer(bundle.parents[1], "--precision-share", "0", "--threads", "1") as server:
        ask(server, ROWS[:400])
        assert show(server) is None
        assert read_series(server) == {}


def test_a_fall_raises_the_alarm_of_a_running_server(promise_head):
    """Contexts of another kind are mixed in, so that P@1 falls to .97: the alarm comes in time, and not before."""
    rows, promise = grouped.promise_contexts.contexts[-2000:], 0.99
    others = contexts_elsewhere(rows[:400], 2000)
    hits, other_hits = (mark_best(promise_head, each) for each in (rows, others))
    precision, other_precision = hits.mean(), other_hits.mean()
    assert other_precision < FALLEN < promise < precision
    order = np.random.default_rng(3).permutation(len(rows))  # in which rows are replaced, until P@1 has fallen
    fallen = precision - (hits - other_hits)[order].cumsum() / len(rows)
    count_mixed = int((fallen <= FALLEN).argmax()) + 1
    share = count_mixed / len(rows)
    mixed = rows.copy()
    mixed[order[:count_mixed]] = others[order[:count_mixed]]
    assert mark_best(promise_head, mixed).mean() == pytest.approx(FALLEN, abs=0.003)
    with RunningServer(promise_head.folder.parents[1], *ALL) as server:
        ask_and_wait(server, rows, k=REPLAY_K)
        assert show(server)["alarm"] is False
        count = 0
        while not show(server)["alarm"] and count < len(mixed):
            ask_and_wait(server, mixed[count : count + 100], k=REPLAY_K)
            count += 100
        shown, series = show(server), read_series(server)
        print(f"P@1 {precision:.4f}, of others {other_precision:.4f}, their share {share:.2f}: alarm in {count} rows")
        assert shown["alarm"] is True
        assert shown["at"]["1"]["promise"] == promise
        assert max(value for (name, *_), value in series.items() if name == "shortlist_precision_alarm") == 1
        errors = [line for line in server.log if "ERROR" in line]
        assert len(errors) == 1
        assert re.search(r"model 'lm' version 1: P@\d is 0\.\d+ on live rows, 0\.9900 promised", errors[0])


def mark_best(head, rows):
    top = head.topk(rows, REPLAY_K)
    return judge_answers(head, rows, top.ids, top.logprobs, (1,)).hits[1]


def test_exact_answers_while_the_alarm_stands(bundle):
    head = shortlist.load(bundle, threads=1)
    exact = head.topk(OTHERS[:50], 5, exact=True)
    assert not np.array_equal(head.topk(OTHERS[:50], 5).ids, exact.ids)
    with RunningServer(bundle.parents[1], *ALL, "--precision-exact") as server, shortlist.Client(server.url) as client:
        before = client.topk("lm", OTHERS[:1], 5)
        ask_and_wait(server, np.tile(OTHERS, (3, 1)))
        wait_until(lambda: show(server)["exact_answers"], show(server))
        assert client.topk("lm", OTHERS[:1], 5).normalizer != before.normalizer, "a request whose JSON was seen before"
        assert np.array_equal(client.topk("lm", OTHERS[:50], 5).ids, exact.ids)
        body = {"model": "lm", "contexts": OTHERS[:50].tolist(), "k": 5}
        assert server.http.post("/v1/topk", json=body).json()["ids"] == exact.ids.tolist()
        rows = show(server)["rows"]
        ask_and_wait(server, OTHERS)
        shown = show(server)
        assert shown["rows"] >= rows + len(OTHERS)
        fifth = shown["at"]["5"]
        assert fifth["precision"]["high"] < fifth["promise"], "of the plan's answers, not of these"


@pytest.mark.parametrize("latest", ["1", "2"])
def test_a_version_that_is_worse_than_promised_is_rolled_back(bundle, tmp_path, latest):
    """Whether the older one is served beside it or not."""
    home = tmp_path / "lm"
    home.mkdir()
    put_version(bundle, home, 1)
    put_version(bundle, home, 2)
    with RunningServer(tmp_path, *ALL, "--precision-rollback", "--latest-versions", latest) as server:
        assert server.http.get("/v1/models/lm").json()["version"] == 2
        ask(server, np.tile(OTHERS, (4, 1)))
        wait_until(lambda: server.http.get("/v1/models/lm").json()["version"] == 1, server.log)
        versions = server.http.get("/v1/models/lm").json()["versions"]
        state = {each["version"]: (each["state"], each["reason"]) for each in versions}
        assert state[2][0] == "rolled_back"
        assert re.match(r"rolled back: P@\d is 0\.\d+ on live rows", state[2][1])
        ask(server, np.tile(OTHERS, (4, 1)))
        wait_until(lambda: (show(server) or {"alarm": False})["alarm"], show(server))
        assert server.http.get("/v1/models/lm").json()["version"] == 1, "the last version that stands is served on"
