"""/docs loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

pytestmark = pytest.mark.slow


def test_every_file_of_the_page_is_this_servers(small_server):
    page = small_server.http.get("/docs")
    places = re.findall(r"""(?:src|href)=["']([^"']+)""", page.text)
    assert len(places) == 3
    for place in places:
        assert not place.startswith(("http", "/")), place
        response = small_server.http.get(f"/{place}")
        assert response.status_code == 200
        assert len(response.content) > 1000
    assert "//" not in page.text.replace("http://www.w3.org", "")


def test_a_browser_runs_no_other_script(small_server):
    page = small_server.http.get("/docs")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["connect-src"] == "'self'"


def test_other_pages_of_the_framework_are_not_there(small_server):
    for path in ("/redoc", "/docs/oauth2-redirect", "/docs/files/../../secret", "/docs/files/%2e%2e/core.py"):
        assert small_server.http.get(path).status_code == 404


@pytest.mark.parametrize("wanted", ["bytes=9-1", "bytes=999999999-", "x", "bytes=0-3"])
def test_files_are_sent_whole_whatever_range_is_named(small_server, wanted):
    path = "/docs/files/swagger-ui.css"
    whole, part = small_server.http.get(path), small_server.http.get(path, headers={"Range": wanted})
    assert (part.status_code, part.content) == (200, whole.content)
