"""The files of a bundle: which are refused, what tells that one changed, which may be written."""

from __future__ import annotations

import os

import pytest
from shortlist.bundle.files import protect, refuse_links, take_stamp
from shortlist.bundle.reader import Bundle
from shortlist.errors import BundleError

from tests.support.layers import copy_writable


@pytest.fixture
def bundle(small_repository, tmp_path):
    return copy_writable(small_repository / "lm" / "1", tmp_path / "lm" / "1")


def test_the_version_folder_may_be_a_link(bundle, tmp_path):
    """Repositories are laid out with links: what lies inside of a version is what counts."""
    link = tmp_path / "served"
    link.symlink_to(bundle, target_is_directory=True)
    refuse_links(link)
    assert Bundle(link).manifest.name == "lm"


def test_links_below_are_refused_wherever_they_lead(bundle):
    for target in (bundle / "labels.json", "/etc/passwd", "nowhere"):
        (bundle / "link").symlink_to(target)
        with pytest.raises(BundleError, match="link is a link"):
            refuse_links(bundle)
        (bundle / "link").unlink()
    refuse_links(bundle)


def test_a_bundle_that_is_opened_unverified_may_share_its_files(bundle, tmp_path):
    """As drafts in the cache of a search do."""
    (tmp_path / "second").hardlink_to(bundle / "labels.json")
    assert Bundle(bundle, verify=False).labels()
    with pytest.raises(BundleError, match="hard link"):
        Bundle(bundle)


def test_what_changes_a_file_changes_its_stamp(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12")
    stamp = take_stamp(path)
    assert take_stamp(path) == stamp
    path.chmod(0o400)
    assert take_stamp(path) == stamp
    os.utime(path, ns=(0, 0))
    assert take_stamp(path) != stamp
    stamp = take_stamp(path)
    path.unlink()
    assert take_stamp(path) is None
    path.write_bytes(b"12")
    os.utime(path, ns=(0, 0))
    path.with_name("other").write_bytes(b"12")
    os.utime(path.with_name("other"), ns=(0, 0))
    path.with_name("other").replace(path)
    assert take_stamp(path) != stamp, "another file in its place"


def test_all_but_the_report_loses_its_write_permission(tmp_path):
    for name in ("manifest.json", "graphs/a.onnx", "report/index.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o666)
    protect(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o222 for path in tmp_path.rglob("*")}
    assert not modes["manifest.json"] | modes["a.onnx"]
    assert modes["index.html"]
    assert modes["graphs"]
    assert modes["report"]
