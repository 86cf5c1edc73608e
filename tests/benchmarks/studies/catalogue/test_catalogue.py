"""The study of catalogues on a small one: truth, recall, peers at the recall asked for, the line of figures."""

import argparse
import json

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Dense

from benchmarks.studies.catalogue.__main__ import run_study
from benchmarks.studies.catalogue.inputs import make_catalogue
from benchmarks.studies.catalogue.measure import CHUNK_ITEMS, find_best, measure_recall
from benchmarks.studies.catalogue.peers import Peer, build_peers, list_peers

ITEMS, DIM, K = 20_000, 16, 10


@pytest.fixture(scope="module")
def catalogue():
    return make_catalogue(ITEMS, DIM, 400, 60)


def test_a_catalogue_is_the_same_for_the_same_seed_and_its_norms_vary(catalogue):
    again = make_catalogue(ITEMS, DIM, 400, 60)
    np.testing.assert_array_equal(catalogue.items, again.items)
    np.testing.assert_array_equal(catalogue.asked, again.asked)
    norms = np.linalg.norm(catalogue.items, axis=1)
    assert np.quantile(norms, 0.999) > 2.5 * np.median(norms)
    assert not np.isin(catalogue.asked, catalogue.contexts).any()


def test_the_best_are_those_of_all_products():
    random = np.random.default_rng(0)
    items = random.standard_normal((CHUNK_ITEMS + 5_000, 4)).astype(np.float32)
    users = random.standard_normal((7, 4)).astype(np.float32)
    np.testing.assert_array_equal(find_best(items, users, K), np.argsort(-(users @ items.T), axis=1)[:, :K])


def test_recall_is_of_the_mean_row_and_of_the_worst():
    users, true = np.arange(100, dtype=np.float32)[:, None], np.tile(np.arange(4), (100, 1))
    recall = measure_recall(lambda row: np.array([[0, 1, 9, 9] if row[0, 0] < 10 else [3, 2, 1, 0]]), users, true)
    assert recall.mean == pytest.approx(0.95)
    assert recall.worst == 0.5


def test_peers_are_set_to_the_recall_that_is_asked(catalogue):
    true = find_best(catalogue.items, catalogue.asked, K)
    names = list_peers(graphs=False)
    peers = list(build_peers(Dense(catalogue.items), catalogue.contexts, catalogue.asked, true, names))
    assert sum(isinstance(peer, str) and "--graphs" in peer for peer in peers) == 3
    for peer in peers:
        if isinstance(peer, Peer):
            assert peer.recall >= 0.99, peer


@pytest.mark.parametrize(("name", "setting"), [("FAISS IVF, int8", {}), ("hnswlib", {"ef": 400})])
def test_filters_of_peers_permit_members_alone(catalogue, name, setting):
    true = find_best(catalogue.items, catalogue.asked, K)
    (peer,) = (
        each
        for each in build_peers(Dense(catalogue.items), catalogue.contexts, catalogue.asked, true, [name])
        if isinstance(each, Peer)
    )
    peer.contender.use(peer.contender.setting | setting)
    marks = np.random.default_rng(2).random(ITEMS) < 0.5
    members = marks.nonzero()[0]
    best = members[find_best(catalogue.items[members], catalogue.asked, K)]
    ids = peer.contender.topk_permitted(catalogue.asked, K, peer.contender.make_filter(marks))
    assert marks[ids].all()
    assert np.mean([np.isin(*pair).mean() for pair in zip(best, ids, strict=True)]) > 0.95


@pytest.mark.slow
def test_the_study_says_all_its_figures(tmp_path, capfd):
    args = argparse.Namespace(
        cache=tmp_path, items=ITEMS, dim=DIM, k=K, users=40, graphs=False, peers=None, no_peers=True
    )
    run_study(args)
    line = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (line["items"], line["dim"]) == (ITEMS, DIM)
    assert line["recall"] > 0.97
    assert line["exact_recall"] == 1.0
    for share, ways in line["within"].items():
        assert ways["named set"]["recall"] > 0.96, share
        assert ways["by hand: score the set"]["recall"] == 1.0
    assert 0 < line["load_seconds"] < line["ready_seconds"]
    assert line["export_minutes"] > 0
    assert line["bundle_gib"] * 2**30 + 2**24 > ITEMS * DIM * 4
    assert line["export_peak_gib"] > 0.1
