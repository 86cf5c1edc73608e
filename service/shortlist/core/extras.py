"""Optional packages: one line that names the extra when one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from shortlist.errors import MissingExtra

EXTRA_OF_MODULE = {
    "onnxruntime": "cpu",
    "fastapi": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
    "orjson": "serve",
    "pydantic_settings": "serve",
    "shortlist_exporter": "export",
    "shortlist_models": "export",
    "torch": "export",
    "onnx": "export",
    "rich": "export",
    "matplotlib": "export",
    "jinja2": "export",
    "transformers": "capture",
    "gguf": "capture",
    "accelerate": "capture",
}


def require(module: str, extra: str | None = None) -> ModuleType:
    """Import `module`, or raise MissingExtra naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if missing not in EXTRA_OF_MODULE and extra is None:
            raise
        name = extra or EXTRA_OF_MODULE[missing]
        raise MissingExtra(f"{missing} is not installed: run `pip install 'shortlist[{name}]'`") from None
