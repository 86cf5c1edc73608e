import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.capture.windows import cut_texts, share_windows

WINDOW = 4


def tokenize(document, **_):
    """Numbers are tokens."""
    return {"input_ids": [int(word) for word in document.split()]}


def write_numbers(path, first, count, documents=1):
    """A file of `count` successive numbers, in so many documents."""
    parts = np.array_split(np.arange(first, first + count), documents)
    path.write_text("\f\n".join(" ".join(map(str, part)) + "\n" for part in parts))
    return path


def test_texts_without_weights_are_one_text_from_its_beginning(tmp_path):
    texts = [Text(write_numbers(tmp_path / "a", 0, 6)), Text(write_numbers(tmp_path / "b", 6, 20))]
    windows = cut_texts(texts, tokenize, WINDOW, 9)
    np.testing.assert_array_equal(windows.tokens, np.arange(3)[:, None] * 4 + np.arange(5))
    np.testing.assert_array_equal(windows.documents, [0, 0, 1])
    assert len(cut_texts(texts, tokenize, WINDOW, None).tokens) == 6


def test_texts_with_weights_give_contexts_in_proportion_from_all_over(tmp_path):
    texts = [Text(write_numbers(tmp_path / "a", 0, 81), 1.0), Text(write_numbers(tmp_path / "b", 1000, 81), 3.0)]
    windows = cut_texts(texts, tokenize, WINDOW, 32)
    first = windows.tokens[:, 0]
    assert sorted(first[first < 1000]) == [0, 40]
    assert sorted(first[first >= 1000]) == [1000, 1012, 1024, 1040, 1052, 1064]


def test_texts_with_weights_take_turns_so_that_the_last_documents_are_of_all(tmp_path):
    texts = [
        Text(write_numbers(tmp_path / "a", 0, 81, documents=10), 1.0),
        Text(write_numbers(tmp_path / "b", 1000, 161, documents=10), 2.0),
    ]
    windows = cut_texts(texts, tokenize, WINDOW, None)
    assert len(windows.tokens) == 60
    assert {9, 19} <= set(windows.documents[-6:]) <= {8, 9, 18, 19}
    for part in (windows.tokens[:, 0] < 1000, windows.tokens[:, 0] >= 1000):
        assert (np.diff(windows.documents[part]) >= 0).all()


@pytest.mark.parametrize("weight", [None, 1.0])
def test_documents_are_of_the_kind_that_their_file_is_named_after(tmp_path, weight):
    files = {"prose.txt": 0, "code.txt": 1000}
    texts = [Text(write_numbers(tmp_path / name, first, 81, documents=3), weight) for name, first in files.items()]
    windows = cut_texts(texts, tokenize, WINDOW, None)
    assert windows.kinds == {"prose": [0, 1, 2], "code": [3, 4, 5]}
    assert ((windows.tokens[:, 0] >= 1000) == np.isin(windows.documents, windows.kinds["code"])).all()


def test_files_of_one_name_are_one_kind(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    texts = [Text(write_numbers(tmp_path / folder / "news.txt", 0, 40), 1.0) for folder in ("a", "b")]
    assert cut_texts(texts, tokenize, WINDOW, None).kinds == {"news": [0, 1]}


@pytest.mark.parametrize(
    ("available", "weights", "limit", "counts"),
    [
        ([100, 100], [1, 1], 10, [5, 5]),
        ([100, 100], [1, 3], 8, [2, 6]),
        ([1, 100, 100], [1, 1, 2], 10, [1, 3, 6]),
        ([3, 4], [1, 1], 100, [3, 4]),
        ([100, 100, 100], [1, 1, 1], 10, [4, 3, 3]),
        ([10, 30], [1, 1], None, [10, 10]),
        ([10, 30], [1, 2], None, [10, 20]),
        ([10, 30], [1, 100], None, [1, 30]),
    ],
)
def test_shares_follow_the_weights_as_far_as_the_texts_go(available, weights, limit, counts):
    assert share_windows(available, weights, limit) == counts


@pytest.mark.parametrize("count", [0, 1, WINDOW])
def test_a_text_with_a_weight_that_is_shorter_than_a_window_is_named(tmp_path, count):
    texts = [Text(write_numbers(tmp_path / "long", 0, 81), 1.0), Text(write_numbers(tmp_path / "short", 0, count), 1.0)]
    with pytest.raises(BadInput, match=f"short has {count} tokens, fewer than one window of 4"):
        cut_texts(texts, tokenize, WINDOW, None)
