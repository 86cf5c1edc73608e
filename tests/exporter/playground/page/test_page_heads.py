"""Heads that go and come back while the page is open, and answers that take their time, in a real browser."""

from __future__ import annotations

import time

import pytest

from tests.exporter.playground.pages import PHONE, TEXT, choose_head, story_of, words_by_server, words_of
from tests.support.servers.browser import wait_until

pytestmark = pytest.mark.slow
HEADS, NEXT = "**/playground/heads", "**/playground/next"


def chosen_head(page):
    return page.locator("#head option:checked").inner_text().split(",")[0]


def keep_heads(page, *names):
    """Let the server's list of heads hold these alone, as where the others were unloaded."""

    def alter(route):
        response = route.fetch()
        overview = response.json()
        overview["heads"] = [head for head in overview["heads"] if head["name"] in names]
        route.fulfill(response=response, json=overview)

    page.route(HEADS, alter)


def test_a_head_that_comes_back_is_asked_about_the_text_again(opened, playground):
    """It stayed with another head, and said that the vectors of that one have the wrong length."""
    page = opened(head="hostile")
    keep_heads(page, "large")
    wait_until(lambda: chosen_head(page) == "large")
    assert page.is_checked("#by-vectors")
    page.unroute(HEADS)
    wait_until(lambda: chosen_head(page) == "hostile")
    assert page.is_checked("#by-text")
    wait_until(lambda: words_of(page) == words_by_server(playground, model="hostile", text=TEXT))
    assert page.locator("#problem").inner_text() == ""


def test_a_head_that_is_chosen_meanwhile_stays(opened):
    page = opened(head="hostile")
    keep_heads(page, "large", "lm")
    wait_until(lambda: chosen_head(page) == "lm")
    choose_head(page, "large")
    page.unroute(HEADS)
    wait_until(lambda: page.locator("#head option").count() == 3)
    assert chosen_head(page) == "large"
    choose_head(page, "lm")
    assert page.is_checked("#by-text")


def test_generating_ends_where_the_head_goes(opened):
    """Words went on coming, of a vector of another head."""
    page = opened(refusals=True)
    page.route(NEXT, lambda route: (time.sleep(0.2), route.continue_()))
    page.click("#generate")
    wait_until(lambda: len(story_of(page)) >= 2)
    keep_heads(page, "large")
    wait_until(lambda: chosen_head(page) == "large" and page.is_disabled("#stop"))
    count = len(story_of(page))
    assert count < 50
    wait_until(lambda: "200,000 classes scored" in page.locator("#tiles").inner_text())
    assert len(story_of(page)) == count


def test_an_answer_that_takes_its_time_leaves_the_former_one_marked(opened):
    page = opened()
    page.route(NEXT, lambda route: (time.sleep(2), route.continue_()))
    page.fill("#text", "w5 w5")
    page.locator("#answer-part[aria-busy=true]").wait_for()
    page.locator("#answer-part[aria-busy=false]").wait_for()


def test_a_word_with_a_mark_can_be_read_on_a_phone(opened):
    """The mark took the whole width, and the word had ten pixels."""
    page = opened(**PHONE)

    def alter(route):
        response = route.fetch()
        answer = response.json()
        for candidate, place in zip(answer["rows"][0]["head"]["candidates"], (7, None), strict=False):
            candidate["place"] = place
        route.fulfill(response=response, json=answer)

    page.route(NEXT, alter)
    page.click("#ask")
    marked = page.locator("#sides .choice:has(.tag)")
    wait_until(lambda: all(mark in "".join(marked.all_text_contents()) for mark in ("#7", "only here")))
    words = marked.locator("button")  # those of an answer that another one just replaced have no width
    wait_until(lambda: min(words.evaluate_all("all => all.map(word => word.offsetWidth)"), default=0) > 60)


def test_texts_of_both_directions_are_typed_in_their_own(opened):
    page = opened()
    page.fill("#text", "مرحبا")
    assert page.evaluate("getComputedStyle(document.getElementById('text')).direction") == "rtl"
