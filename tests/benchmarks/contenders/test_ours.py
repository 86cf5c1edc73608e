"""Bundles of our own contenders are kept, and taken again only where they are what would be exported now."""

import numpy as np
import pytest

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
