"""/: a page that shows which models the server has, whether they are ready, and live figures of each.

The page itself holds no figures: its script asks /v1/models, /readyz and /metrics, with the API key that its reader
types where the server wants one. Nothing of it comes from elsewhere, and a browser may run no other script.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

FILES_PATH = "/overview"
FOLDER = Path(__file__).with_name("overview")
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def add_overview(app: FastAPI) -> None:
    """Add the page to an app at `/`, and its script and style at `/overview`."""

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def overview() -> FileResponse:
        """What the server serves, for people."""
        return FileResponse(FOLDER / "index.html", headers=SECURITY_HEADERS)

    app.mount(FILES_PATH, StaticFiles(directory=FOLDER))
