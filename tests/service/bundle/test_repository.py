import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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


@contextmanager
def unprivileged():
    """Without the rights of root, where tests have them: root may read everything."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_what_this_user_may_not_read_does_not_hide_the_rest(caplog):
    with TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for place in ("lm/1", "lm/2", "secret/1"):
            (root / place).mkdir(parents=True)
            (root / place / "manifest.json").touch()
        for closed in ("lm/2", "secret"):
            (root / closed).chmod(0)
        with unprivileged():
            bundles = {name: list(versions) for name, versions in scan(root).items()}
        for closed in ("lm/2", "secret"):
            (root / closed).chmod(0o755)
    assert bundles == {"lm": [1, 2]}, "a version that is closed is listed, so that its load says why"
    assert "secret cannot be listed" in caplog.text
