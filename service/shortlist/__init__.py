"""Top-k decoding of large output layers.

`load` a bundle in-process, or ask a server with `Client`. Importing this needs neither torch, onnx nor fastapi.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shortlist.core.queries import BeamStep
from shortlist.core.results import TopK
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.decoding.run import beam_search, beam_search_async

from . import errors
from .errors import ShortlistError
from .head import Head, load

if TYPE_CHECKING:
    from shortlist.client.async_client import AsyncClient
    from shortlist.client.client import Client

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


def __getattr__(name: str) -> Any:
    """Import the clients on first use: who loads a head does not wait for httpx and asyncio."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module 'shortlist' has no attribute '{name}'")
    from shortlist import client

    return getattr(client, name)
