"""The small language model, loaded."""

import pytest


@pytest.fixture(scope="session")
def model(model_folder):
    """What `load_model` gives of the small model."""
    from shortlist_exporter.capture.language_model import load_model

    return load_model(model_folder)
