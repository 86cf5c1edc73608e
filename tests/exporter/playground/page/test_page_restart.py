"""The page of a server that asks for keys, and that is stopped and started again under it."""

from __future__ import annotations

import pytest

from tests.exporter.playground.site import RunningPlayground
from tests.support.servers.browser import open_browser, open_page, wait_until

pytestmark = pytest.mark.slow

WATCHER, BOTH = "watcher-of-the-test-0123456789", "everything-of-the-test-0123456789"
KEYS = {"SHORTLIST_API_KEYS": f"w observe {WATCHER};b ask,observe {BOTH}"}


def test_keys_are_asked_for_and_a_new_server_goes_on(repository, model_folder, free_port):
    arguments = (repository, "--model", model_folder)
    with open_browser() as browser:
        with RunningPlayground(*arguments, port=free_port, variables=KEYS) as first:
            page, _, _ = open_page(browser, first.url)
            errors = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            use_key(page, WATCHER)
            page.locator("#problem", has_text="ask").wait_for()  # the role that this key has not
            page.wait_for_timeout(2500)  # the page looks at the server meanwhile
            assert page.locator("#access").is_visible()
            use_key(page, BOTH)
            page.locator("#sides button").first.click()
            wait_until(lambda: page.locator("#words button").count() == 1)
            assert page.locator("#access").is_hidden()
        wait_until(lambda: "does not answer" in page.locator("#status").inner_text())
        page.locator("#sides button").first.click()
        with RunningPlayground(*arguments, port=free_port, variables=KEYS):
            wait_until(lambda: page.locator("#status").inner_text().startswith("ready"))
            wait_until(lambda: page.locator("#words button").count() == 2)
            page.locator("#sides button").first.click()
            wait_until(lambda: page.locator("#words button").count() == 3)
        assert errors == []


def use_key(page, key):
    """Type a key where the page asks for one."""
    page.locator("#access").wait_for()
    page.fill("#key", key)
    page.press("#key", "Enter")
