"""Pages for readers name only what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# A path in backticks: at least one slash, and letters that paths of this project have.
PATH_PATTERN = re.compile(r"`((?:service|exporter|models|benchmarks|tests|docs|deploy|examples|tools|\.ci)/[\w./-]*)`")


def find_paths(page):
    """Paths of the project that a page names in backticks or links to."""
    text = page.read_text("utf-8")
    links = {page.parent / link for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text)}
    return links | {ROOT / name for name in PATH_PATTERN.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    assert [str(path) for path in find_paths(page) if not path.exists()] == []


def find_anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_headings(page):
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text("utf-8"))
    places = [(page.parent / name if name else page, anchor) for name, anchor in links]
    assert [f"{place}#{anchor}" for place, anchor in places if anchor not in find_anchors(place)] == []


def test_every_target_of_make_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    names = set(re.findall(r"(?:`|^)make ([a-z-]+)\b(?!/)", text, re.MULTILINE))
    assert len(names) > 20
    assert names - targets == set()


def test_contributing_names_both_ways():
    names = {path.relative_to(ROOT).as_posix() for path in find_paths(ROOT / "CONTRIBUTING.md")}
    for folder in ("transport", "engine", "codecs", "scheduling"):
        assert any(name.startswith(f"service/shortlist/server/{folder}/") for name in names), folder
    for folder in ("commands", "export", "inputs", "methods", "graphs", "verify"):
        assert any(name.startswith(f"exporter/shortlist_exporter/{folder}") for name in names), folder


def test_index_links_every_page():
    index = ROOT / "docs" / "index.md"
    assert set(index.parent.glob("*.md")) - {path.resolve() for path in find_paths(index)} == {index}
