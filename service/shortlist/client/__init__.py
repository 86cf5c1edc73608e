"""Clients of a Shortlist server, blocking and for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    """Import a client on first use: who asks without asyncio does not wait for that."""
    if name == "Client":
        from .client import Client

        return Client
    if name == "AsyncClient":
        from .async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'shortlist.client' has no attribute '{name}'")
