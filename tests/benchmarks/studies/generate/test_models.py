"""Where the models come from."""

import importlib.util

import pytest
from shortlist.errors import MissingExtra

from benchmarks.studies.generate import models


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "GEMMA_PACKAGE", "no_such_package")
    with pytest.raises(MissingExtra, match=r"make \.venv/gemma\.stamp"):
        models.assemble_gemma(tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec(models.GEMMA_PACKAGE) is None, reason="`make .venv/gemma.stamp` was not run"
)
def test_gemma_is_joined_from_its_parts(tmp_path):
    path = models.assemble_gemma(tmp_path)
    assert path.read_bytes()[:4] == b"GGUF"
