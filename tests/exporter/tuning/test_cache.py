import errno
import os
from pathlib import Path

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.tuning import cache
from shortlist_exporter.tuning.cache import Cache


def test_what_was_kept_is_found_under_its_key_alone(tmp_path):
    cache = Cache(tmp_path)
    cache.keep_value(cache.key("svd", 6), [1, 2])
    assert Cache(tmp_path).value(cache.key("svd", 6)) == [1, 2]
    assert cache.value(cache.key("svd", 7)) is None


def test_nothing_of_another_bundle_format_is_taken(tmp_path, monkeypatch):
    before = Cache(tmp_path).key("svd", 6)
    monkeypatch.setattr(cache, "FORMAT_VERSION", cache.FORMAT_VERSION + 1)
    assert Cache(tmp_path).key("svd", 6) != before


def test_a_user_without_a_home_names_the_folder(monkeypatch):
    """As the anonymous user of a container, whom no line of /etc/passwd knows."""

    def has_no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", has_no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(BadInput, match="no home folder for the cache: name a folder by --cache"):
        cache.default_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/kept")
    assert cache.default_folder() == Path("/kept/shortlist/tune")


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match=r"the cache .*/file/tune cannot be written \(Not a directory\).* --cache"):
        Cache(tmp_path / "file" / "tune")
    full = Cache(tmp_path / "full")
    with pytest.raises(BadInput, match=r"the cache .*/full cannot be written \(No space left on device\)"):
        fill(full)


def fill(full):
    """Write into a cache whose disk is full."""
    with full.make("fit"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
