"""Top-k decoding of large output layers.

`load` a bundle in-process, or ask a server with `Client`. Importing this needs neither torch, onnx nor fastapi.
"""

from __future__ import annotations

from shortlist.client.async_client import AsyncClient
from shortlist.client.client import Client
from shortlist.core.queries import BeamStep
from shortlist.core.results import TopK
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.decoding.run import beam_search, beam_search_async

from . import errors
from .errors import ShortlistError
from .head import Head, load

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "BeamStep",
    "Client",
    "Head",
    "NamedLists",
    "RowLists",
    "ShortlistError",
    "TopK",
    "beam_search",
    "beam_search_async",
    "errors",
    "load",
]
