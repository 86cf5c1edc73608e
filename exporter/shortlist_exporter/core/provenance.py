"""The record of a bundle's origin: inputs, versions, command line, time."""

from __future__ import annotations

import datetime
import platform
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata

from shortlist_exporter.inputs.sources import Contexts, Dense

RECORDED_PACKAGES = ("shortlist", "torch", "onnx", "onnxruntime", "onnxruntime-gpu", "numpy", "safetensors")


def record_provenance(dense: Dense, contexts: Contexts) -> dict[str, object]:
    """Where the bundle came from: hashes of its inputs, versions, command line, UTC time."""
    return {
        "weights_sha256": dense.sha256,
        "contexts_sha256": contexts.sha256,
        "contexts_rows": len(contexts.contexts),
        "versions": {"python": platform.python_version()} | list_versions(),
        "command": sys.argv,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@cache
def list_versions() -> dict[str, str]:
    """Versions of the packages that make bundles; of other packages nothing is read."""
    versions = {}
    for name in RECORDED_PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
