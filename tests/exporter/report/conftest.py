"""One small bundle with clusters, labels and documents, and the report that its export wrote."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.report.measure import comparison

from tests.support.layers import CLASSES, copy_writable, make_contexts, make_dense

DOCUMENTS = np.repeat(np.arange(20), 40).astype(np.int32)
CONTEXTS = Contexts(make_contexts(800).contexts, documents=DOCUMENTS, sha256="of nothing")
OPTIONS = {"clusters": "6", "budget": "40", "rounds": "0", "background": "0"}
LABELS = [f"<b>word {i}</b>" for i in range(CLASSES)]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    """Times are not what these tests are about."""
    monkeypatch.setattr(comparison, "SINGLE_SECONDS", 0.01)
    monkeypatch.setattr(comparison, "BATCH_SECONDS", 0.01)


@pytest.fixture(scope="session")
def report_bundle(tmp_path_factory) -> Path:
    """Folder of a bundle of method l2s, exported with its report, which asked for P@1 .5."""
    out = tmp_path_factory.mktemp("reported") / "lm" / "1"
    request = Request("l2s", OPTIONS, {1: 0.5}, LABELS, fallback=False, threads=1, report=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "SINGLE_SECONDS", 0.05)
        export(make_dense(), CONTEXTS, out, request)
    return out


@pytest.fixture
def bundle_folder(report_bundle, tmp_path) -> Path:
    """A copy of the bundle, which a test may change."""
    return copy_writable(report_bundle, tmp_path / "lm" / "1")


class Page(HTMLParser):
    """Headings, tags and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.headings: list[str] = re.findall(r"<h2>(.*?)</h2>", text)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
