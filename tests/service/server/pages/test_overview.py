"""The page at / in a real browser: figures, keys, a server that is gone; nothing from elsewhere, no errors."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist

from tests.support.layers import RunningServer
from tests.support.servers.browser import check_access, open_browser, open_page, wait_until

pytestmark = pytest.mark.slow

WATCHER_KEY = "watcher-of-the-test-0123456789"
PARTS = ("", "overview/script.js", "overview/style.css")


@pytest.fixture
def browser():
    with open_browser() as browser:
        yield browser


def read_facts(page, model):
    """What the card of a model says, by the names of its facts."""
    heading = f"{model['name']}, version {model['version']}"
    card = page.locator("article").filter(has=page.get_by_role("heading", name=heading, exact=True))
    card.locator("dd").first.wait_for()
    return dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))


def count_requests(page, model):
    """How many requests the card of a model has counted."""
    return int(read_facts(page, model)["Requests"].split()[0].replace(",", ""))


@pytest.mark.parametrize(
    "options", [{"color_scheme": "light"}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}]
)
def test_a_browser_shows_live_figures(browser, small_server, options):
    page, logs, urls = open_page(browser, small_server.url, **options)
    (model, *_) = small_server.http.get("/v1/models").json()["models"]
    before = count_requests(page, model)
    with shortlist.Client(small_server.url) as client:
        for _ in range(5):
            client.topk(model["name"], np.ones((1, model["dim"]), np.float32), 1)
    wait_until(lambda: count_requests(page, model) >= before + 5)
    assert page.locator("#status").inner_text() == "ready"
    assert read_facts(page, model)["Method"] == model["method"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert logs == []
    assert all(url.startswith(small_server.url) for url in urls)


def test_nothing_serious_is_in_the_way_of_anybody(browser, small_server):
    page, _, _ = open_page(browser, small_server.url)
    page.locator("article dd").first.wait_for()
    check_access(page)


def test_figures_want_the_key_and_a_server_that_is_gone_is_said(browser, small_repository):
    with RunningServer(
        small_repository, wait=False, variables={"SHORTLIST_API_KEYS": f"w observe {WATCHER_KEY}"}
    ) as server:
        page, _, _ = open_page(browser, server.url)
        page.wait_for_selector("#access:not([hidden])")
        assert "wants an API key" in page.locator("#status").inner_text()
        assert page.locator("article").count() == 0
        page.fill("#key", WATCHER_KEY)
        page.click("button")
        page.wait_for_selector("article dd")
        assert page.locator("#access").is_hidden()
    wait_until(lambda: "does not answer" in page.locator("#status").inner_text())


def test_the_page_can_be_left_out(small_repository):
    with RunningServer(small_repository, "--no-overview") as server:
        assert [server.http.get(f"/{part}").status_code for part in PARTS] == [404, 404, 404]
