"""Clients of a Shortlist server, synchronous and asynchronous."""

from __future__ import annotations

from .async_client import AsyncClient
from .client import Client

__all__ = ["AsyncClient", "Client"]
