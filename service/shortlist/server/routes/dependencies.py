"""What routes share: the service behind the app."""

from __future__ import annotations

from fastapi import Request

from shortlist.server.engine.service import Service


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
