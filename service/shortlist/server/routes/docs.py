"""/docs: the OpenAPI document as a page to try requests on; its script and style come from this server alone."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

FILES_PATH = "/docs/files"
FILES = "docs/files"  # relative to the page, which a proxy may serve below a path of its own
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def make_page() -> HTMLResponse:
    """The page; its security policy lets a browser load nothing from elsewhere, and run no other script."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Shortlist",
        swagger_js_url=f"{FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{FILES}/swagger-ui.css",
        swagger_favicon_url=f"{FILES}/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},
    )
    (script,) = INLINE_SCRIPT.findall(bytes(page.body).decode())
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page.headers["content-security-policy"] = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page


def add_docs(app: FastAPI) -> None:
    """Add the page to an app, and the files of Swagger UI that it loads."""
    page = make_page()

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """The OpenAPI document in a browser."""
        return page

    app.mount(FILES_PATH, PageFiles(directory=str(files("fastapi_offline") / "static")))


class PageFiles(StaticFiles):
    """Files that are sent whole, whatever range a request names, as HTTP permits: then no range can be wrong."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request for a file."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)
