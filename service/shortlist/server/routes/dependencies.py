"""What routes share: the service behind the app, and versions in paths."""

from __future__ import annotations

from fastapi import Request

from shortlist.core.checks import cut
from shortlist.errors import NotFound
from shortlist.server.engine.service import Service


def service_of(request: Request) -> Service:
    """The service behind the app."""
    service: Service = request.app.state.service
    return service


def version_number(text: str | None, name: str) -> int | None:
    """A version from a path or query; raises NotFound when it is no number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFound(f"Request for unknown model: '{cut(name)}' version {cut(text)} is not found")
    return int(text)
