"""Optional packages: importing one that is missing raises one line that names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from shortlist.errors import MissingExtra

MODULES_OF_EXTRA = {  # as in pyproject.toml; a module that two extras bring stands under the smaller one
    "cpu": ("onnxruntime", "pyroaring"),
    "serve": (
        *("fastapi", "starlette", "fastapi_offline", "uvicorn", "uvloop", "orjson"),
        *("prometheus_client", "pydantic_settings", "pythonjsonlogger"),
    ),
    "ray": ("ray",),
    "otel": ("opentelemetry",),
    "export": ("shortlist_exporter", "shortlist_models", "torch", "onnx", "rich", "matplotlib", "jinja2"),
    "capture": ("transformers", "gguf", "accelerate"),
}
EXTRA_OF_MODULE = {module: extra for extra, modules in MODULES_OF_EXTRA.items() for module in modules}


def require(module: str, extra: str | None = None) -> ModuleType:
    """Import `module`, or raise MissingExtra naming the extra that brings what is missing.

    extra: named instead of the one that `EXTRA_OF_MODULE` has for the missing package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if missing not in EXTRA_OF_MODULE and extra is None:
            raise
        name = extra or EXTRA_OF_MODULE[missing]
        raise MissingExtra(f"{missing} is not installed: run `pip install 'shortlist[{name}]'`") from None
