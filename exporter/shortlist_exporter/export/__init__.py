"""A weight matrix's way: fit, graphs, bundle, verify."""

from __future__ import annotations

from .request import Request
from .run import export

__all__ = ["Request", "export"]
