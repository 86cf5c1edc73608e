"""The page with labels of any kind and number, and for people of any kind, in a real browser."""

from __future__ import annotations

import pytest

from tests.exporter.playground.pages import LOOKS, story_of, words_by_server, words_of
from tests.exporter.playground.site import LONG_LABEL
from tests.support.servers.browser import check_access, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("options", LOOKS)
def test_labels_are_text_whatever_they_hold(opened, options):
    page = opened(head="hostile", **options)
    page.fill("#k", "60")
    wait_until(lambda: page.locator("#sides tr").count() == 122)
    labels = page.locator("#sides bdi").all_inner_texts()
    assert any(label.startswith("<b>bold</b><script>") for label in labels)
    assert any("\\u202ethgir ot tfel\\u202c" in label for label in labels)
    assert any("two⏎lines⏎⏎" in label for label in labels)
    assert any(label == f"{LONG_LABEL[:60]}…" for label in labels)
    for _ in range(4):
        page.locator("#sides button").first.click()
        count = len(story_of(page))
        wait_until(lambda count=count: len(story_of(page)) >= count)
    page.locator("#words button").last.hover()
    assert page.locator("main :is(b, img, script)").count() == 0
    assert page.evaluate("Math.max(...[...document.querySelectorAll('#sides tr')].map(row => row.offsetHeight)) < 80")


def test_200_000_labels(opened, playground):
    page = opened(head="large", text=None)
    wait_until(lambda: "200,000 classes scored" in page.locator("#tiles").inner_text())
    assert page.locator("#by-text").is_disabled()
    page.fill("#vectors", " ".join(["0.5"] * 16))
    page.fill("#allow", "item 199999, item 3, 17")
    wanted = {"model": "large", "contexts": [[0.5] * 16], "allow": ["item 199999", "item 3", "17"]}
    wait_until(lambda: words_of(page) == words_by_server(playground, **wanted))


@pytest.mark.parametrize("options", LOOKS)
def test_nothing_serious_is_in_the_way_of_anybody(opened, options):
    page = opened(refusals=True, **options)
    page.click("#commands summary")
    page.locator("#sides button").first.click()
    wait_until(lambda: len(story_of(page)) == 1)
    page.locator("#words button").first.focus()
    page.locator("#candidates").wait_for()
    check_access(page)
    page.fill("#ban", "nonsense")
    page.locator("#problem", has_text="nonsense").wait_for()
    page.check("#by-vectors")
    check_access(page)
