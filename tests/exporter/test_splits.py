import numpy as np
from shortlist_exporter.sources import Contexts
from shortlist_exporter.splits import split

from tests.support import make_contexts

rows = make_contexts(200).contexts


def test_the_last_tenth_is_held_out():
    fit, held = split(Contexts(rows), 0)
    assert (len(fit), sorted(held)) == (180, list(range(180, 200)))


def test_documents_are_never_cut():
    documents = np.repeat(np.arange(8), 25).astype(np.int32)
    fit, held = split(Contexts(rows, documents=documents), 0)
    assert set(documents[fit]) == set(range(7))
    assert set(documents[held]) == {7}


def test_one_document_is_cut_all_the_same():
    fit, held = split(Contexts(rows, documents=np.zeros(200, np.int32)), 0)
    assert (len(fit), len(held)) == (180, 20)


def test_held_out_rows_are_distinct():
    doubled = rows.copy()
    doubled[190:] = doubled[180:190]
    assert len(split(Contexts(doubled), 0)[1]) == 10
