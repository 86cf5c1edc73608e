from pathlib import Path

import pytest
from shortlist.errors import NotFound
from shortlist_exporter.playground.source import REPOSITORIES, Source, find_source, name_head


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a model's."""
    folder = tmp_path / "My model (2)"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_has_a_repository_of_its_own(model):
    assert find_source(str(model), None, None) == Source(model, REPOSITORIES / "My-model--2-", "My-model--2-")
    assert find_source(str(model), None, Path("repo")).repository == Path("repo")


def test_a_repository_goes_without_a_model_or_with_one(tmp_path, model):
    assert find_source(str(tmp_path), None, None) == Source(None, tmp_path)
    assert find_source(str(tmp_path), str(model), None) == Source(model, tmp_path, "My-model--2-")


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(NotFound, match="there is no model or repository at"):
        find_source(str(tmp_path / "absent"), None, None)
    with pytest.raises(NotFound, match="there is no model at"):
        find_source(str(tmp_path), str(tmp_path / "absent"), None)


@pytest.mark.parametrize(
    ("file", "name"), [("a.gguf", "a"), ("..hidden", "hidden"), ("\N{GREEK SMALL LETTER PI}", "-")]
)
def test_names_of_heads_are_names_that_a_repository_takes(tmp_path, file, name):
    assert name_head("elsewhere", tmp_path / file) in (name, "lm")
