"""The recommender of the examples, as small as it can be: trained, exported, served and asked by names."""

import argparse

import numpy as np
import pytest
import torch
from shortlist.errors import BadInput, MissingExtra, NotFound

from examples.recommend.evaluate import measure
from examples.recommend.interactions import (
    find_packaged_interactions,
    pad_histories,
    read_histories,
    read_titles,
)
from examples.recommend.model import Recommender, Shape
from examples.recommend.run import run_example
from examples.recommend.train import compute_contexts, compute_users

ITEMS, USERS, TAKEN = 120, 160, 12


def write_interactions(path):
    """Users who walk round a circle of items in steps of 1 or 2, from anywhere: what comes next can be learnt."""
    random = np.random.default_rng(0)
    rows = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(USERS):
        places = (random.integers(ITEMS) + random.integers(1, 3, size=TAKEN).cumsum()) % ITEMS
        rows += [f"u{user}\titem {place}\t5\t{second}" for second, place in enumerate(places)]
    path.write_text("\n".join([rows[0], *random.permutation(rows[1:])]) + "\n", "utf-8")
    path.with_suffix(".item").write_text("item_id:token\tmovie_title:token_seq\nitem 3\tThe Third\n", "utf-8")
    return path


def test_histories_are_in_order_of_time_and_hold_each_item_once(tmp_path):
    path = tmp_path / "some.inter"
    times = {"a": [(5, "x"), (1, "y"), (9, "y"), (7, "z"), (8, "w")], "b": [(1, "x"), (2, "y"), (3, "x")]}
    lines = [f"{user}\t{item}\t{time}" for user, taken in times.items() for time, item in taken]
    path.write_text("\n".join(["user_id\titem_id\ttimestamp", *lines]), "utf-8")
    histories = read_histories(path)
    assert histories.users == ["a"]
    assert [[histories.items[item] for item in taken] for taken in histories.taken] == [["y", "x", "z", "w"]]
    assert [len(taken) for taken in histories.cut(1)] == [3]
    assert histories.items[histories.targets(1)[0]] == "w"


def test_files_that_are_no_interactions_are_refused(tmp_path):
    path = tmp_path / "some.inter"
    with pytest.raises(NotFound, match="there is no file at"):
        read_histories(path)
    path.write_text("user_id\titem_id\na\tb\n", "utf-8")
    with pytest.raises(BadInput, match="has no columns user_id, item_id, timestamp"):
        read_histories(path)
    path.write_text("user_id\titem_id\ttimestamp\na\tb\t1\n", "utf-8")
    with pytest.raises(BadInput, match=r"no user of .* took 4 different items"):
        read_histories(path)


def test_files_in_other_encodings_are_refused(tmp_path):
    path = write_interactions(tmp_path / "walks.inter")
    path.with_suffix(".item").write_bytes("item_id\tmovie_title\n1\tAmélie\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"walks\.item is not UTF-8: convert it"):
        read_titles(path)
    path.write_bytes(path.read_bytes() + "ü\té\t5\t1\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"walks\.inter is not UTF-8: convert it"):
        read_histories(path)


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(BadInput, match="dim is 33 but must be a multiple of 2"):
        Shape(items=20, dim=33)


def test_titles_stand_beside_interactions(tmp_path):
    path = write_interactions(tmp_path / "walks.inter")
    assert read_titles(path) == {"item 3": "The Third (?)"}
    assert read_titles(tmp_path / "others.inter") == {}


def test_padding_stands_in_front_and_old_items_are_left_out():
    rows = pad_histories([[1, 2, 3, 4], [5]], 3, 9)
    assert rows.tolist() == [[2, 3, 4], [9, 9, 5]]


def test_what_comes_later_or_is_padding_changes_no_state():
    torch.manual_seed(0)
    model = Recommender(Shape(items=20, dim=8, length=5)).eval()
    taken = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 7, 8]])
    with torch.no_grad():
        states = model(taken)
        torch.testing.assert_close(states[0, :3], states[1, :3])
    contexts = compute_contexts(model, [[1, 2, 3, 4, 5], [6]])
    assert contexts.shape == (6, 8)
    np.testing.assert_allclose(contexts[4], compute_users(model, [[1, 2, 3, 4, 5]])[0], rtol=1e-5)


def test_figures_of_answers_whose_ranks_are_known():
    served = np.array([["a", "b", "c"], ["d", "e", "f"], ["g", "h", None]], dtype=object)
    exact = np.array([["a", "b", "c"], ["d", "e", "x"], ["g", "h", None]], dtype=object)
    figures = measure(served, exact, ["b", "z", "g"], depths=(1, 3))
    assert figures.ndcg == pytest.approx((1 / np.log2(3) + 0 + 1) / 3)
    assert figures.hits == {1: pytest.approx(1 / 3), 3: pytest.approx(2 / 3)}
    assert figures.agreement == {1: 1.0, 3: pytest.approx((1 + 2 / 3 + 1) / 3)}


@pytest.mark.slow
def test_the_example_learns_serves_by_names_and_says_how_good_it_is(tmp_path, capsys):
    path = write_interactions(tmp_path / "walks.inter")
    histories, titles = read_histories(path), read_titles(path)
    args = argparse.Namespace(out=tmp_path / "repository", dim=32, length=12, epochs=30)
    line = run_example(args, histories, titles)
    assert (line["users"], line["items"]) == (USERS, len(histories.items))
    assert line["ndcg_10_exact"] > 0.35  # of two items that may come next, any ten of 120 at random have .04
    assert line["ndcg_10"] == pytest.approx(line["ndcg_10_exact"], abs=0.02)
    assert line["recall"][10] > 0.8
    assert line["agreement"][10] > 0.99
    printed = capsys.readouterr().out
    assert "is recommended" in printed
    assert "what was taken is banned, all other items are ranked" in printed
    assert f"shortlist serve {args.out}, model items" in printed


def test_the_packaged_interactions_are_movielens():
    try:
        path = find_packaged_interactions()
    except MissingExtra:
        pytest.skip("package recbole is not installed")
    histories = read_histories(path)
    assert (len(histories.users), len(histories.items)) == (943, 1682)
    assert sum(map(len, histories.taken)) == 100_000
    assert read_titles(path)[histories.items[0]] == "Star Wars (1977)"
