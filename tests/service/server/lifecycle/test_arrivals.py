"""Versions whose files are still being copied."""

from __future__ import annotations

import shutil

import pytest
from shortlist.bundle.manifest import MANIFEST_FILE, read_manifest
from shortlist.server.lifecycle.arrivals import Arrivals, digest_signature, is_complete

from tests.support.clock import Clock

SECONDS = 30


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def arrivals(clock):
    return Arrivals(SECONDS, clock)


def test_a_whole_bundle_has_arrived_at_once(small_repository, arrivals):
    assert arrivals.has_arrived(small_repository / "lm" / "1")


def test_a_copy_has_arrived_with_its_last_byte(small_repository, tmp_path, arrivals, clock):
    source, target = small_repository / "lm" / "1", tmp_path / "1"
    for name in (MANIFEST_FILE, *read_manifest(source).files):
        path, copy = source / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        for part in (path.read_bytes()[:-1], path.read_bytes()):
            clock.now += SECONDS - 1
            assert not arrivals.has_arrived(target)
            copy.write_bytes(part)
    assert is_complete(target)
    assert arrivals.has_arrived(target)


def test_what_does_not_change_any_more_is_as_whole_as_it_will_be(small_repository, tmp_path, arrivals, clock):
    target = tmp_path / "1"
    shutil.copytree(small_repository / "lm" / "1", target, ignore=shutil.ignore_patterns("manifest.json"))
    assert not arrivals.has_arrived(target)
    clock.now += SECONDS / 2
    (target / "more").write_bytes(b"")
    assert not arrivals.has_arrived(target)
    clock.now += SECONDS - 1
    assert not arrivals.has_arrived(target)
    clock.now += 1
    assert arrivals.has_arrived(target)


def test_folders_that_are_gone_are_forgotten(tmp_path, arrivals):
    folders = [tmp_path / "lm" / "1", tmp_path / "lm" / "2", tmp_path / "other" / "1"]
    assert not any(arrivals.has_arrived(folder) for folder in folders)
    arrivals.forget_gone(tmp_path / "lm", [folders[1]])
    assert list(arrivals.sightings) == folders[1:]


def test_the_digest_of_a_signature_is_that_of_the_same_files_alone(tmp_path):
    (tmp_path / "some").write_bytes(b"1")
    digest = digest_signature(tmp_path)
    assert digest_signature(tmp_path) == digest
    (tmp_path / "some").write_bytes(b"12")
    assert digest_signature(tmp_path) != digest
