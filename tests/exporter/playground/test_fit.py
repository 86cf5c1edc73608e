import pytest
import shortlist
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.playground.fit import fit_window, has_head, make_head

from tests.exporter.capture.tiny import write_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def made(tmp_path_factory, language_model):
    """A repository with a head that was made for the model."""
    root = tmp_path_factory.mktemp("made")
    text = write_text(root / "text.txt", documents=6, length=200)
    make_head(language_model, root / "repo", "tiny", [Text(text)], rows=600)
    return root / "repo"


def test_a_model_without_a_head_gets_one(made, language_model):
    head = shortlist.load(made / "tiny" / "1", threads=1)
    assert (head.manifest.method, head.manifest.classes) == ("grouped", language_model.dense.classes)
    assert head.label_array[3] == "w3"
    assert not list(made.parent.glob("*.safetensors"))


def test_one_that_has_a_head_gets_no_other(made, language_model):
    make_head(language_model, made, "another", rows=1)
    assert [path.name for path in made.iterdir()] == ["tiny"]


def test_a_bundle_that_does_not_open_is_no_head(made, language_model, tmp_path):
    dense = language_model.dense
    assert has_head(made, dense.classes, dense.dim)
    assert not has_head(made, dense.classes, dense.dim + 1)
    assert not has_head(tmp_path / "absent", dense.classes, dense.dim)
    (tmp_path / "lm" / "1").mkdir(parents=True)
    (tmp_path / "lm" / "1" / "manifest.json").write_text("{}")
    assert not has_head(tmp_path, dense.classes, dense.dim)


def test_windows_are_no_longer_than_the_model_reads(language_model):
    assert fit_window(language_model, 1_000) == 64
    assert fit_window(language_model, 8) == 8
