"""Imports of what may be missing: one line names the extra to install, or the systems that have it."""

from __future__ import annotations

import importlib
from types import ModuleType

from shortlist.errors import MissingExtra, Unsupported

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
POSIX_MODULES = ("fcntl", "resource")  # of the standard library, everywhere but on Windows


def require(module: str, extra: str | None = None) -> ModuleType:
    """Import `module`, or raise MissingExtra naming the extra that brings what is missing; on Windows Unsupported.

    extra: named instead of the one that `EXTRA_OF_MODULE` has for the missing package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if missing in POSIX_MODULES:
            raise Unsupported("heads and servers do not run on Windows, only clients do: use Linux") from None
        if missing not in EXTRA_OF_MODULE and extra is None:
            raise
        name = extra or EXTRA_OF_MODULE[missing]
        raise MissingExtra(f"{missing} is not installed: run `pip install 'shortlist[{name}]'`") from None
