"""Top-k decoding of large output layers.

`load` a bundle in-process, or ask a server with `Client`. Importing this needs neither torch, onnx nor fastapi.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shortlist.core.extras import require
from shortlist.core.results import TopK
from shortlist.core.row_lists import NamedLists, RowLists

from . import errors
from .errors import ShortlistError

if TYPE_CHECKING:
    from shortlist.client.async_client import AsyncClient
    from shortlist.client.client import Client
    from shortlist.core.queries import BeamStep
    from shortlist.decoding.run import beam_search, beam_search_async
    from shortlist.head import Head, load

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
LAZY_MODULES = {  # of names whose modules take long to import
    "AsyncClient": "shortlist.client.async_client",
    "BeamStep": "shortlist.core.queries",
    "Client": "shortlist.client.client",
    "Head": "shortlist.head",
    "beam_search": "shortlist.decoding.run",
    "beam_search_async": "shortlist.decoding.run",
    "load": "shortlist.head",
}


def __getattr__(name: str) -> Any:
    """Import what takes long on first use: who asks a server waits for no bundles, who loads a head for no asyncio."""
    if name not in LAZY_MODULES:
        raise AttributeError(f"module 'shortlist' has no attribute '{name}'")
    value = getattr(require(LAZY_MODULES[name]), name)
    globals()[name] = value
    return value
