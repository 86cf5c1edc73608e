"""A small language model and a text, to capture contexts from."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A Hugging Face folder, with more rows than the tokenizer has words."""
    from tests.exporter.capture.tiny import WORDS, save_model  # which takes seconds to import

    folder = tmp_path_factory.mktemp("model")
    save_model(folder, vocab_size=WORDS + 8, tie_word_embeddings=False)
    return folder


@pytest.fixture
def text(tmp_path):
    """Some documents, in a file."""
    from tests.exporter.capture.tiny import write_text

    return write_text(tmp_path / "text.txt")
