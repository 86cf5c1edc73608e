import pytest
from shortlist.bundle.repository import check_name, scan
from shortlist.errors import BadInput, NotFound


def test_lists_names_and_versions_in_order(tmp_path):
    for version in ("10", "2", "1"):
        (tmp_path / "lm" / version).mkdir(parents=True)
        (tmp_path / "lm" / version / "manifest.json").touch()
    for ignored in (".hidden/1", "lm/.unfinished-3-99", "lm/notes", "empty", "half/1"):
        (tmp_path / ignored).mkdir(parents=True)
    assert {name: list(versions) for name, versions in scan(tmp_path).items()} == {"lm": [1, 2, 10]}


def test_an_empty_repository(tmp_path):
    with pytest.raises(NotFound, match="is empty"):
        scan(tmp_path)
    with pytest.raises(NotFound, match="there is no repository"):
        scan(tmp_path / "absent")


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "-x"])
def test_names_that_cannot_travel_in_paths(name):
    with pytest.raises(BadInput):
        check_name(name)
