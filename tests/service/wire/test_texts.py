"""Texts as binary tensors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import BadInput
from shortlist.wire.texts import join_texts, split_texts

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=12)


@given(TEXTS)
def test_what_is_joined_is_split_again(texts):
    array = split_texts(memoryview(join_texts(texts)), (len(texts), 1))
    assert array.dtype == np.object_
    assert array.tolist() == [[text] for text in texts]


@given(TEXTS, st.integers(1, 30))
def test_bytes_that_are_cut_are_refused(texts, missing):
    raw = join_texts(texts)
    if missing <= len(raw):
        with pytest.raises(BadInput):
            split_texts(memoryview(raw)[:-missing], (len(texts),))


def test_another_count_than_was_announced_is_refused():
    with pytest.raises(BadInput, match=r"there are 2 texts for shape \[3\]"):
        split_texts(memoryview(join_texts(["a", "b"])), (3,))


def test_no_more_texts_are_read_than_were_announced():
    with pytest.raises(BadInput, match=r"there are more than 3 texts for shape \[3\]"):
        split_texts(memoryview(bytes(4 << 10)), (3,))
