"""Top-k decoding of large output layers.

`load` a bundle in-process, or ask a server with `Client`. Importing this needs neither torch, onnx nor fastapi.
"""

from __future__ import annotations

from shortlist.client.async_client import AsyncClient
from shortlist.client.client import Client
from shortlist.core.results import TopK

from . import errors
from .errors import ShortlistError
from .head import Head, load

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Head", "ShortlistError", "TopK", "errors", "load"]
