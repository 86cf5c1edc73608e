"""Top-k decoding of large output layers.

`load` a bundle in-process, or ask a server with `Client`. Importing this needs neither torch, onnx nor fastapi.
"""

from __future__ import annotations

from . import errors
from .client import AsyncClient, Client
from .errors import ShortlistError
from .head import Head, load
from .result import TopK

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Head", "ShortlistError", "TopK", "errors", "load"]
