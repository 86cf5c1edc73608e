"""Clients of a Shortlist server, blocking and for asyncio."""

from __future__ import annotations

from .async_client import AsyncClient
from .client import Client

__all__ = ["AsyncClient", "Client"]
