"""The service's own app, with the playground at its root."""

from __future__ import annotations

import logging

from fastapi import FastAPI
from shortlist.server.app import create_app
from shortlist.server.settings import Settings

from .body import Body
from .routes import add_page, add_routes
from .session import Session

# All rows are asked again, so that served precision is seen after a few words; a fifth of a processor is for that.
FIXED_SETTINGS = {"overview": False, "precision_share": 1.0, "precision_cpu": 0.2}


def make_app(settings: Settings, body: Body | None) -> FastAPI:
    """The app of one repository. body: reads the prompts; None where vectors are pasted. Raises as `create_app`."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # its requests do not leave this process
    app = create_app(settings)
    add_page(app)
    add_routes(app, Session(body))
    return app
