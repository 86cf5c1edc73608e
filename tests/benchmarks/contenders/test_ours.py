"""Bundles of our own contenders are kept, and taken again only where they are what would be exported now."""

import numpy as np
import pytest
from shortlist.bundle.writer import seal

from benchmarks.contenders import ours
from tests.support.layers import make_contexts, make_dense


@pytest.mark.parametrize("change", ["format", "revision", "build", "contexts"])
def test_a_bundle_that_would_differ_has_a_folder_of_its_own(change, monkeypatch):
    dense, contexts, build = make_dense(200, 12), make_contexts(dim=12).contexts, {"width": 6}
    before = ours.OursSvd(build, 1).locate_bundle(dense, contexts)
    assert ours.OursSvd(dict(build), 1).locate_bundle(dense, np.array(contexts)) == before
    if change == "format":
        monkeypatch.setattr(ours, "FORMAT_VERSION", ours.FORMAT_VERSION + 1)
    elif change == "revision":
        monkeypatch.setattr(ours.OursSvd, "revision", "next")
    elif change == "build":
        build = {"width": 7}
    else:
        contexts = contexts[:-1]
    assert ours.OursSvd(build, 1).locate_bundle(dense, contexts) != before


def test_a_bundle_that_is_read_no_more_is_exported_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "BUNDLES", tmp_path)
    dense, contexts = make_dense(200, 12), make_contexts(dim=12).contexts
    contender = ours.OursL2s({"clusters": 4, "rounds": 0, "background": 0}, 1)
    contender.fit(dense, contexts)
    path = contender.folder / "manifest.json"
    expected, written = contender.topk(contexts[:8], 5), path.stat().st_mtime_ns
    contender.fit(dense, contexts)
    assert path.stat().st_mtime_ns == written
    manifest = contender.head.manifest
    sets = manifest.arrays["screen_sets"]
    flat = manifest.arrays | {"screen_sets": sets.model_copy(update={"shape": (sets.size // 4,)})}
    path.unlink()
    seal(contender.folder, manifest.model_copy(update={"arrays": flat}))  # as sets were laid out before
    contender.fit(dense, contexts)
    assert contender.head.manifest.arrays["screen_sets"].shape == sets.shape
    np.testing.assert_array_equal(contender.topk(contexts[:8], 5), expected)
