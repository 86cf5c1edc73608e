"""Heads and clients as objects: printed, copied, pickled, and used after their files were replaced."""

import copy
import pickle
import shutil

import numpy as np
import pytest
import shortlist
from shortlist.errors import BadInput, BundleError

from tests.support.layers import make_contexts, make_dense, make_head

DIM, CLASSES = 32, 600


@pytest.fixture
def folder(tmp_path):
    head = make_head(tmp_path, make_dense(CLASSES, DIM), make_contexts(400, DIM), method="full", options={})
    return tmp_path / head.manifest.name / str(head.manifest.version)


def test_a_head_says_what_it_is(folder):
    assert repr(shortlist.load(folder)) == f"<Head {folder.parent.name}: {CLASSES} classes x {DIM}>"
    assert repr(shortlist.Client("http://127.0.0.1:9/")) == "Client('http://127.0.0.1:9')"


@pytest.mark.parametrize("how", [pickle.dumps, copy.deepcopy])
def test_heads_and_clients_are_not_pickled(folder, how):
    for one in (shortlist.load(folder), shortlist.Client("http://127.0.0.1:9"), shortlist.AsyncClient("http://x:9")):
        with pytest.raises(BadInput, match="cannot be pickled or copied deeply: open another one in each process"):
            how(one)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_files_that_changed_after_the_head_was_loaded_are_not_opened(folder, tmp_path, is_replaced):
    """The graph for several rows is opened late: another head's answered in its place."""
    contexts = make_contexts(5, DIM).contexts
    head = shortlist.load(folder)
    head.topk(contexts[:1], k=3)
    shutil.rmtree(folder)
    if is_replaced:
        dense = make_dense(CLASSES, DIM, seed=9)
        make_head(tmp_path, dense, make_contexts(400, DIM), method="full", options={})
    with pytest.raises(BundleError, match="was written, replaced or removed since it was loaded: load it again"):
        head.topk(contexts, k=3)


def test_a_head_that_has_opened_all_of_its_files_goes_on_without_them(folder):
    contexts = make_contexts(5, DIM).contexts
    head = shortlist.load(folder)
    ids = head.topk(contexts, k=3).ids
    shutil.rmtree(folder)
    np.testing.assert_array_equal(head.topk(contexts, k=3).ids, ids)
