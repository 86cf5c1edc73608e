"""The page in a real browser: every control, by mouse, finger and keyboard; nothing from elsewhere, no errors."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.exporter.playground.pages import (
    LOOKS,
    PHONE,
    TEXT,
    ask_server,
    choose_head,
    story_of,
    words_by_server,
    words_of,
)
from tests.support.servers.browser import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("options", LOOKS)
def test_next_words_of_both_sides(opened, playground, options):
    page = opened(**options)
    (row,) = ask_server(playground, model="lm", text=TEXT)
    cells = page.locator("#sides table").first.locator("tbody tr").first.locator("td").all_inner_texts()
    best = row["head"]["candidates"][0]
    assert cells[1].startswith(best["label"])
    assert cells[2] == f"{100 * best['probability']:.{2 if best['probability'] < 0.1 else 1}f}%"
    tiles = page.locator("#tiles").inner_text()
    assert "300 classes scored" in tiles
    assert "as fast as the dense layer" in tiles
    alone = [candidate["id"] for candidate in row["head"]["candidates"] if candidate["place"] is None]
    marked = page.locator("#sides table").first.locator("tr.alone button")
    assert [int(title.split()[1]) for title in marked.evaluate_all("all => all.map(one => one.title)")] == alone
    verdict = "says the same" if row["agrees"] else "the dense layer says “"
    assert verdict in page.locator("#summary").inner_text()


def test_every_way_to_ask(opened, playground):
    page = opened(refusals=True)
    question = {"model": "lm", "text": TEXT}

    def check(**more):
        question.update(more)
        wait_until(lambda: words_of(page) == words_by_server(playground, **question))

    page.fill("#k", "4")
    check(k=4)
    page.check("#exact")
    check(exact=True)
    page.fill("#ban", 'w5, "w6", 7')
    check(ban=["w5", "w6", "7"])
    page.fill("#allow", "w1,w5,w8,w9")
    check(allow=["w1", "w5", "w8", "w9"])
    assert page.locator("#sides table").first.locator("tbody tr").count() == 3  # w5 is banned
    page.fill("#allow", "nonsense")
    page.locator("#problem", has_text="no class of lm is called 'nonsense'").wait_for()
    assert page.locator("#sides table").count() == 0
    page.fill("#allow", "")
    del question["allow"]
    check()
    assert page.locator("#problem").inner_text() == ""
    choose_head(page, "hostile")
    page.fill("#ban", "")
    del question["ban"]
    check(model="hostile")


def test_words_are_chosen_and_taken_back(opened, playground):
    page = opened()
    first = page.locator("#sides table").last.get_by_role("button").nth(1)
    label, number = first.inner_text(), int(first.get_attribute("title").split()[1])
    first.click()
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", text=TEXT, words=[number]))
    assert story_of(page) == [label]
    page.locator("#sides button").first.click()
    wait_until(lambda: len(story_of(page)) == 2)
    page.click("#back")
    wait_until(lambda: story_of(page) == [label])
    page.click("#clear")
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", text=TEXT))
    assert page.locator("#story-part").is_hidden()


def test_fifty_words_with_their_candidates(opened, playground):
    page = opened()
    page.click("#generate")
    wait_until(lambda: len(story_of(page)) == 50)
    wait_until(lambda: page.locator("#generate").is_enabled())
    assert page.locator("#stop").is_disabled()
    words = [0 if word == "<s>" else int(word.removeprefix("w")) for word in story_of(page)]
    for place in (0, 20):
        (row,) = ask_server(playground, model="lm", text=TEXT, words=words[:place])
        word = page.locator("#words button").nth(place)
        assert row["head"]["candidates"][0]["id"] == words[place]
        assert ("differs" in word.get_attribute("class")) == (not row["agrees"])
        word.hover()
        panel = page.locator("#candidates")
        shown = panel.locator("li bdi").all_inner_texts()
        assert shown == [c["label"] for side in ("head", "dense") for c in row[side]["candidates"][:5]]
        assert "The dense layer" in panel.inner_text()
    page.mouse.move(0, 0)
    assert panel.is_hidden()
    assert page.locator("#words .differs").count() > 0  # the head is that bad
    page.locator("#words button").nth(20).click()
    wait_until(lambda: len(story_of(page)) == 20)


def test_words_stop_where_asked_and_no_second_run_goes_on(opened):
    page = opened()
    page.route("**/playground/next", lambda route: (page.wait_for_timeout(60), route.continue_()))
    page.click("#generate")
    wait_until(lambda: len(story_of(page)) >= 2)
    page.click("#stop")
    page.click("#generate")
    page.click("#stop")
    count = len(story_of(page))
    page.wait_for_timeout(800)
    assert len(story_of(page)) == count < 50
    page.unroute("**/playground/next")


def test_the_keyboard_alone_does_all(opened, playground):
    page = opened()

    def press(*keys):
        for key in keys:
            page.keyboard.press(key)

    def focused():
        return page.evaluate("document.activeElement.id || document.activeElement.innerText")

    page.focus("#text")
    press("Tab")
    assert focused() == "ask"
    press("Tab", "Enter")
    wait_until(lambda: len(story_of(page)) == 50)
    wait_until(lambda: focused() == "generate")
    press(*["Tab"] * 8)  # head, k, exact, allow, ban, back, clear
    assert focused() == story_of(page)[-1]
    press("ArrowLeft", "ArrowLeft")
    assert page.locator("#candidates").is_visible()
    described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert described == "candidates"
    press("Escape")
    assert page.locator("#candidates").is_hidden()
    press("Home", "Enter")
    wait_until(lambda: story_of(page) == [])
    assert focused() == "text"
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", text=TEXT))
    page.locator("#sides button").nth(2).focus()
    press("Enter")
    wait_until(lambda: len(story_of(page)) == 1)
    wait_until(
        lambda: page.evaluate("[...document.querySelectorAll('#sides button')].indexOf(document.activeElement)") == 2
    )


def test_a_finger_sees_candidates_before_it_goes_back(opened):
    page = opened(**PHONE)
    for count in (1, 2):
        page.locator("#sides button").first.tap()
        wait_until(lambda count=count: len(story_of(page)) == count)
    word = page.locator("#words button").first
    word.tap()
    page.locator("#candidates").wait_for()
    assert len(story_of(page)) == 2
    word.tap()
    wait_until(lambda: story_of(page) == [])


def test_vectors_are_pasted_or_taken(opened, playground):
    page = opened()
    page.check("#by-vectors")
    wait_until(lambda: page.locator("#vectors").input_value().startswith("[["))
    assert page.locator("#generate").is_disabled()
    before = page.locator("#vectors").input_value()
    page.click("#sample")
    wait_until(lambda: page.locator("#vectors").input_value() != before)
    rows = [[0.25] * 16, [-1.5] * 16]
    page.fill("#vectors", "\n".join(" ".join(map(str, row)) for row in rows))
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", contexts=rows))
    assert page.locator("#sides button").first.is_disabled()  # there is no text to go on with
    page.select_option("#row", "1")
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", contexts=rows[1:]))
    page.fill("#vectors", "\n".join(map(str, [rows[1], rows[0]])))  # a list of JSON a line, as of JSON lines
    wait_until(lambda: words_of(page) == words_by_server(playground, model="lm", contexts=rows[:1]))
    for text, sentence in [
        ("1 2 x", "line 1 has 'x', which is no number"),
        ("[1,", "the vectors are no JSON"),
        ("", "there is no vector"),
        ("1 2\n" * 21, "there are 21 vectors: give 20 at most"),
    ]:
        page.fill("#vectors", text)
        page.locator("#problem", has_text=sentence).wait_for()


def test_charts_follow_what_is_asked(opened):
    page = opened()
    charts = page.locator("#charts figcaption")
    page.click("#generate")
    wait_until(lambda: re.search(r"computation, median: \d", charts.first.inner_text()))
    wait_until(lambda: re.search(r"P@1: [01]\.\d+ \(.* words asked again", charts.last.inner_text()))
    assert page.locator("#charts polyline").first.get_attribute("points")
    assert page.locator("#charts svg[role=img]").first.get_attribute("aria-label") == charts.first.inner_text()


def test_commands_are_copied(opened, playground):
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#commands summary")
    commands = httpx.post(f"{playground.url}/playground/snippets", json={"model": "lm", "text": TEXT}).json()
    for name in ("curl", "python"):
        wait_until(lambda name=name: page.locator(f"#{name}").inner_text() == commands[name])
        page.click(f"[data-copy={name}]")
        page.locator("#copy-note", has_text="copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == commands[name]
