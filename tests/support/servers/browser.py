"""A headless browser, and pages in it that are watched."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager

import pytest

BROWSER = shutil.which("chromium")
PATIENCE_SECONDS = 60
LOOK_SECONDS = 0.05
SERIOUS = {"serious", "critical"}  # what axe-core calls more than moderate


@contextmanager
def open_browser():
    """Debian's chromium; skips with a reason where that or its driver is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if BROWSER is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser, url, **options):
    """Open the page at `url`; returns it, what it logs beside refusals of the server, and which URLs it asks."""
    page, logs, urls = browser.new_context(**options).new_page(), [], []
    page.on("console", lambda message: logs.append(message.text))
    page.on("pageerror", lambda error: logs.append(str(error)))
    page.on("request", lambda request: urls.append(request.url))
    page.goto(url)
    return page, logs, urls


def wait_until(holds):
    """Wait for what the page shows some time; the page's own policy forbids the driver to watch it there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(LOOK_SECONDS)


def check_access(page):
    """Hold a page to what axe-core finds to be in people's way; skips with a reason where it is absent."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in SERIOUS]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in serious] == []
