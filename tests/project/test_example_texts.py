"""The texts that the demonstration fits on: small, with their provenance, each of many documents."""

import re
from pathlib import Path

import pytest
from shortlist_exporter.capture.texts import read_documents

FOLDER = Path("examples/text")
TEXTS = sorted(FOLDER.glob("*.txt"))
MOST_BYTES = 1_000_000
LEAST_DOCUMENTS = 18


def test_all_texts_together_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


def test_every_text_has_its_provenance_and_its_licence():
    rows = re.findall(r"^\| `(\S+)` \|(.*)\|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == [path.name for path in TEXTS]
    assert all(cell.strip() for _, row in rows for cell in row.split("|"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_text_is_of_many_documents_so_that_some_can_be_held_out(path):
    documents = read_documents(path)
    assert len(documents) >= LEAST_DOCUMENTS
    assert len(set(documents)) == len(documents)
