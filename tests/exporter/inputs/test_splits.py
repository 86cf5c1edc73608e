from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.inputs.splits import (
    drop_known_rows,
    mark_held_out,
    select_rows,
    split_held_out,
    split_three_ways,
)

from tests.support.layers import make_contexts

rows = make_contexts(200).contexts


def test_the_last_tenth_is_held_out():
    fit, held_out = split_held_out(Contexts(rows), 0)
    assert (len(fit), sorted(held_out)) == (180, list(range(180, 200)))


def test_documents_are_never_cut():
    documents = np.repeat(np.arange(8), 25).astype(np.int32)
    fit, held_out = split_held_out(Contexts(rows, documents=documents), 0)
    assert set(documents[fit]) == set(range(7))
    assert set(documents[held_out]) == {7}


@pytest.mark.parametrize(("documents", "expected"), [(None, 70), (np.repeat(np.arange(8), 25), 75)])
def test_more_than_a_tenth_is_held_out_where_that_is_too_little(documents, expected):
    fit, held_out = split_held_out(Contexts(rows, documents=documents), 0, least=70)
    assert (len(fit), sorted(held_out)) == (200 - expected, list(range(200 - expected, 200)))


def test_one_document_is_cut_all_the_same():
    fit, held_out = split_held_out(Contexts(rows, documents=np.zeros(200, np.int32)), 0)
    assert (len(fit), len(held_out)) == (180, 20)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_documents_in_a_row_are_held_out_as_far_as_the_last_tenth_reaches(sizes):
    documents = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    start = len(documents) - max(1, len(documents) // 10)
    reached = np.isin(documents, documents[start:])
    expected = reached if not reached.all() else np.arange(len(documents)) >= start
    contexts = Contexts(np.zeros((len(documents), 1), np.float32), documents=documents)
    assert mark_held_out(contexts).tolist() == expected.tolist()


@given(st.integers(2, 30), st.integers(0, 2**31))
def test_mixed_documents_are_held_out_whole_and_few_of_them(count, seed):
    documents = np.random.default_rng(seed).permutation(np.repeat(np.arange(count, dtype=np.int32), 20))
    held = mark_held_out(Contexts(np.zeros((len(documents), 1), np.float32), documents=documents))
    assert not set(documents[held]) & set(documents[~held])
    assert len(set(documents[held])) == max(1, -(-count // 10))


def test_tuning_tests_on_the_rows_that_an_export_holds_out():
    documents = np.random.default_rng(0).permutation(np.repeat(np.arange(10, dtype=np.int32), 20))
    contexts = Contexts(rows, documents=documents)
    _, held = split_held_out(contexts, 7)
    assert split_three_ways(contexts, 7, 10_000, 10_000).test.tolist() == held.tolist()


def give_kinds(sizes_by_kind):
    """Contexts of kinds of text one after another, each of documents of the given sizes."""
    sizes = [size for sizes in sizes_by_kind.values() for size in sizes]
    numbers = iter(range(len(sizes)))
    kinds = {name: [next(numbers) for _ in sizes] for name, sizes in sizes_by_kind.items()}
    documents = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return Contexts(make_contexts(len(documents)).contexts, documents=documents, kinds=kinds)


def shares_of(contexts, part):
    """Of each kind of text, the share of its rows that is in a part."""
    return {name: float(np.isin(rows, part).mean()) for name, rows in contexts.kind_rows.items()}


def test_a_tenth_of_every_kind_is_held_out_where_one_comes_after_another():
    contexts = give_kinds({"news": [20] * 20, "code": [10] * 10, "talk": [30] * 10})
    fit, held = split_held_out(contexts, 0)
    assert shares_of(contexts, held) == dict.fromkeys(contexts.kinds, 0.1)
    assert not set(contexts.documents[fit]) & set(contexts.documents[held])
    assert split_three_ways(contexts, 0, 10_000, 10_000).test.tolist() == held.tolist()


def test_more_than_a_tenth_of_every_kind_is_held_out_where_that_is_too_little():
    contexts = give_kinds({"news": [20] * 20, "code": [10] * 10})
    assert shares_of(contexts, split_held_out(contexts, 0, least=100)[1]) == {"news": 0.2, "code": 0.2}


@pytest.mark.parametrize("sizes", [[100, 100], [80, 80, 80], [30, 200], [100, 100, 100, 600]])
def test_no_kind_gives_much_more_than_a_tenth_to_keep_a_document_whole(sizes):
    contexts = give_kinds({f"kind {number}": sizes for number in range(3)})
    splits = split_three_ways(contexts, 0, 10_000, 10_000)
    for part in (splits.tune, splits.test):
        assert all(0.09 < share < 0.21 for share in shares_of(contexts, part).values())


def test_kinds_of_two_rows_each_are_split_as_they_lie():
    contexts = give_kinds({f"kind {number}": [2] for number in range(300)})
    fit, held = split_held_out(contexts, 0)
    assert (len(fit), sorted(held)) == (540, list(range(540, 600)))


@pytest.mark.parametrize("in_turns", [False, True])
def test_kinds_of_one_document_are_cut(in_turns):
    contexts = give_kinds({"news": [300], "code": [100]})
    if in_turns:
        contexts = select_rows(contexts, np.argsort(np.r_[np.arange(300) / 3, np.arange(100)], kind="stable"))
    splits = split_three_ways(contexts, 0, 10_000, 10_000)
    for part, share in ((splits.fit, 0.8), (splits.tune, 0.1), (splits.test, 0.1)):
        assert shares_of(contexts, part) == dict.fromkeys(contexts.kinds, share)
    assert sorted(splits.test) == sorted(split_held_out(contexts, 0)[1])


def test_rows_of_no_kind_are_held_out_as_a_kind():
    contexts = give_kinds({"other": [20] * 10, "news": [20] * 10, "code": [20] * 10})
    named = replace(contexts, kinds={name: contexts.kinds[name] for name in ("news", "code")})
    held = split_held_out(named, 0)[1]
    assert held.tolist() == split_held_out(contexts, 0)[1].tolist()
    assert shares_of(contexts, held) == dict.fromkeys(contexts.kinds, 0.1)


def test_kinds_that_take_turns_are_split_as_they_lie():
    contexts = give_kinds({"news": [20] * 20, "code": [20] * 15})
    mixed = select_rows(contexts, np.argsort(np.r_[np.arange(400) / 400, np.arange(300) / 300], kind="stable"))
    whole, held = replace(mixed, kinds={}), split_held_out(mixed, 0)[1]
    assert held.tolist() == split_held_out(whole, 0)[1].tolist()


def test_held_out_rows_are_distinct():
    repeats = rows.copy()
    repeats[190:] = repeats[180:190]
    assert len(split_held_out(Contexts(repeats), 0)[1]) == 10


def test_held_out_rows_that_are_fitted_on_too_are_not_measured():
    repeats = rows.copy()
    repeats[190:198] = repeats[:8]
    fit, held = split_held_out(Contexts(repeats), 0)
    assert (sorted(held), len(fit)) == ([*range(180, 190), 198, 199], 180)
    splits = split_three_ways(Contexts(repeats), 0, 100, 100)
    assert sorted(splits.test) == [*range(180, 190), 198, 199]
    assert len(splits.tune) == 20


def share_vectors(contexts, *parts):
    """How many parts each different vector of `contexts` is in."""
    return np.unique(np.concatenate([np.unique(contexts[part], axis=0) for part in parts]), axis=0, return_counts=True)[
        1
    ]


@pytest.mark.parametrize("documents", [None, np.arange(400, dtype=np.int32) // 20])
def test_no_vector_is_in_two_parts_however_often_it_repeats(documents):
    """Held-out rows that a head was fitted on had P@1 1.0 where others had .94."""
    repeats = Contexts(np.random.default_rng(0).permutation(np.repeat(rows[:40], 10, axis=0)), documents=documents)
    fit, held = split_held_out(repeats, 0)
    assert share_vectors(repeats.contexts, fit, held).tolist() == [1] * 40
    splits = split_three_ways(Contexts(repeats.contexts), 0, 10_000, 10_000)
    assert share_vectors(repeats.contexts, splits.fit, splits.tune, splits.test).tolist() == [1] * 40
    assert (len(splits.fit), len(splits.tune), len(splits.test)) == (320, 4, 4)


def test_the_commonest_vector_is_fitted_on():
    repeats = np.where(np.arange(200)[:, None] % 10 == 0, rows, rows[1])
    fit, held = split_held_out(Contexts(repeats), 0)
    assert sorted(held) == [180, 190]
    assert len(fit) == 180


def test_rows_of_one_vector_are_split_as_they_lie():
    fit, held = split_held_out(Contexts(np.ones((50, 3), np.float32)), 0)
    assert (len(fit), len(held)) == (45, 1)


def test_a_test_file_tests_on_what_the_other_file_does_not_hold():
    left = drop_known_rows(np.array([3, 40, 50]), Contexts(rows[100:]), Contexts(rows[:145]))
    assert left.tolist() == [50]


def last_documents(sizes, rows):
    """How many documents from the end hold `rows` rows."""
    count = 0
    while count < len(sizes) and sum(sizes[len(sizes) - count :]) < rows:
        count += 1
    return count


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.randoms())
def test_three_splits_share_no_document_and_hold_all_of_them(sizes, random):
    names = random.sample(range(100), len(sizes))
    documents = np.repeat(np.array(names, np.int32), sizes)
    contexts, tenth = Contexts(make_contexts(len(documents)).contexts, documents=documents), max(1, sum(sizes) // 10)
    test = last_documents(sizes, tenth)
    tune = last_documents(sizes[: len(sizes) - test], tenth)
    fit = len(sizes) - test - tune
    if fit == 0:
        with pytest.raises(BadInput):
            split_three_ways(contexts, 0, 10_000, 10_000)
        return
    splits = split_three_ways(contexts, 0, 10_000, 10_000)
    parts = [set(documents[rows].tolist()) for rows in (splits.fit, splits.tune, splits.test)]
    assert parts == [set(names[:fit]), set(names[fit : fit + tune]), set(names[fit + tune :])]
    assert len(splits.fit) + len(splits.tune) + len(splits.test) == len(documents)


def test_rows_without_documents_are_split_where_they_lie():
    splits = split_three_ways(Contexts(rows), 0, 100, 100)
    assert list(splits.fit) == list(range(160))
    assert sorted(splits.tune) == list(range(160, 180))
    assert sorted(splits.test) == list(range(180, 200))


def test_test_rows_of_a_file_of_their_own():
    splits = split_three_ways(Contexts(rows), 0, 100, 25, test=Contexts(rows[:30]))
    assert list(splits.fit) == list(range(180))
    assert sorted(splits.tune) == list(range(180, 200))
    assert len(set(splits.test.tolist())) == 25


@pytest.mark.parametrize("documents", [[0] * 200, [0] * 100 + [1] * 100])
def test_too_few_documents_for_three_splits(documents):
    with pytest.raises(BadInput, match=r"contexts hold \d documents, too few for fit, tune and test splits"):
        split_three_ways(Contexts(rows, documents=np.array(documents, np.int32)), 0, 100, 100)
