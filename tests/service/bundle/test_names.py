"""Names of classes: read, found, and kept in a bundle."""

import numpy as np
import pytest
from shortlist.bundle.names import NAME_ROLES, Names, has_names, pad_names, resolve_names
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput

from tests.support.layers import CLASSES, make_contexts, make_dense, make_head

TEXTS = ["spot-0", "Käse", "奶酪", "a\nb", "spot-10", "x" * 1000, "1"]
NAMES = Names.make(TEXTS)


def test_every_name_is_read_and_found():
    assert NAMES.read(np.arange(len(TEXTS))).tolist() == TEXTS
    assert NAMES.find(TEXTS).tolist() == list(range(len(TEXTS)))


def test_ids_of_any_shape_are_read():
    assert NAMES.read(np.array([[1, -1], [0, 2]])).tolist() == [["Käse", None], ["spot-0", "奶酪"]]
    assert NAMES.read(np.empty((0, 3), np.int64)).shape == (0, 3)


@pytest.mark.parametrize("name", ["", "spot-", "spot-00", "K\u00e4s", "\ud800"])
def test_a_name_that_no_class_has_is_not_found(name):
    assert NAMES.find([name, "1"]).tolist() == [-1, 6]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["a", ""], "class 1 has an empty name"),
        (["a", "b", "a"], "two classes have the name 'a'"),
        (["a", "b\ud83d"], "the name of class 1 holds half a surrogate pair: give text"),
    ],
)
def test_names_that_tell_nothing_are_refused(texts, sentence):
    with pytest.raises(BadInput, match=sentence):
        Names.make(texts)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "spot-0"], [6, 0]),
        ([["1"], [], ["spot-0", "Käse"]], [[6], [], [0, 1]]),
        (np.array(["1", "Käse"]), [6, 1]),
        ((("1", ""), ("Käse", "spot-0")), [[6], [1, 0]]),
        ([1, 2], [1, 2]),
        ([[1], []], [[1], []]),
        ([], []),
        (None, None),
    ],
)
def test_lists_of_names_become_lists_of_ids(values, expected):
    assert resolve_names("allow", values, NAMES, "lm") == expected


def test_unknown_names_are_refused_or_left_out():
    with pytest.raises(BadInput, match="allow holds 'cat', which no class of lm is called"):
        resolve_names("allow", ["1", "cat"], NAMES, "lm")
    assert resolve_names("ban", ["1", "cat"], NAMES, "lm", unknown=True) == [6]


@pytest.mark.parametrize("values", [["1", 2], [["1"], [2]], ["1", ["2"]]])
def test_names_beside_ids_are_refused(values):
    with pytest.raises(BadInput, match="names alone, or ids alone"):
        resolve_names("ban", values, NAMES, "lm")
    assert has_names(values)
    with pytest.raises(BadInput, match="names alone, or ids alone"):
        pad_names("ban", values)


def test_a_model_without_names_says_so():
    with pytest.raises(BadInput, match="lm was exported without: send ids"):
        resolve_names("ban", ["1"], None, "lm")


def test_rows_of_names_are_padded():
    assert pad_names("ban", [["a"], [], ["b", "c"]]).tolist() == [["a", ""], ["", ""], ["b", "c"]]
    assert pad_names("ban", ("a", "b")).tolist() == ["a", "b"]


def test_padding_keeps_its_place_where_places_matter():
    rows = [["1", ""], ["", "spot-0"], ["", ""]]
    assert resolve_names("ids", rows, NAMES, "lm", in_place=True) == [[6, -1], [-1, 0], [-1, -1]]
    assert resolve_names("ids", ["", "1"], NAMES, "lm", in_place=True) == [-1, 6]
    with pytest.raises(BadInput, match="ids holds 'cat', which no class of lm is called"):
        resolve_names("ids", ["", "cat"], NAMES, "lm", in_place=True)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    names = Names.make([f"item {number}" for number in range(CLASSES)])
    return make_head(tmp_path_factory.mktemp("names"), make_dense(), method="full", options={}, names=names)


@pytest.mark.slow
def test_a_head_is_asked_and_answers_by_name(head):
    rows = make_contexts(3, seed=5).contexts
    by_id = head.topk(rows, 4, allow=[3, 5, 7, 9], ban=[5])
    top = head.topk(rows, 4, allow=["item 3", "item 5", "item 7", "item 9"], ban=["item 5", "no item"], names=True)
    assert top.ids.tolist() == by_id.ids.tolist()
    assert top.names[:, :3].tolist() == [[f"item {number}" for number in row] for row in by_id.ids[:, :3]]
    assert top.names[:, 3].tolist() == [None] * 3
    np.testing.assert_array_equal(head.logprobs(rows, ["item 1", "item 0"]), head.logprobs(rows, [1, 0]))
    with pytest.raises(BadInput, match="no class of"):
        head.topk(rows, 4, allow=["no item"])


@pytest.mark.slow
def test_log_probabilities_stand_where_their_names_do(head):
    rows = make_contexts(3, seed=5).contexts
    names, ids = [["", "item 3"], ["item 5", ""], ["item 7", "item 9"]], [[-1, 3], [5, -1], [7, 9]]
    np.testing.assert_array_equal(head.logprobs(rows, names), head.logprobs(rows, ids))
    np.testing.assert_array_equal(head.logprobs(rows, np.array(names)), head.logprobs(rows, ids))


@pytest.mark.slow
def test_names_are_mapped_and_checked(head, tmp_path):
    bundle = Bundle(head.folder)
    assert {role: bundle.manifest.arrays[role].dtype for role in NAME_ROLES} == dict(
        zip(NAME_ROLES, ("uint8", "int64", "uint64", "int64"), strict=True)
    )
    names = bundle.names()
    assert isinstance(names.hashes.base, np.memmap)
    assert names.find(["item 17"]).tolist() == [17]
