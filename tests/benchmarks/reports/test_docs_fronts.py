"""The documentation's tables and pictures are refreshed from runs; its prose stays."""

from pathlib import Path

import pytest
from shortlist.errors import NotFound

from benchmarks.reports.docs_fronts import TABLE_BLOCK, publish_fronts
from tests.support.runs import make_run

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = "before\n<!-- table: ptb -->\nold\n<!-- end of table -->\nbetween\n<!-- table: smollm2 -->\nkept\n"
PAGE += "<!-- end of table -->\n<!-- table: levels -->\n<!-- end of table -->\nafter\n"


def test_tables_between_marks_are_made_again(tmp_path):
    (tmp_path / "benchmarks.md").write_text(PAGE, "utf-8")
    publish_fronts({"ptb": [make_run(0.9, 10, contender="shortlist svd")]}, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "old" not in text
    assert all(word in text for word in ("before", "between", "kept", "after"))
    assert "| shortlist svd | .9000 |" in text.partition("between")[0]
    assert "| contender | ptb, P@1 .95 |" in text.partition("kept")[2]
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["ptb-p1.png", "ptb-p5.png"]


def test_a_folder_without_the_page_is_named(tmp_path):
    with pytest.raises(NotFound, match=r"benchmarks\.md: give --docs"):
        publish_fronts({}, tmp_path)


def test_the_page_has_every_table_and_shows_pictures_that_are_there():
    text = (DOCS / "benchmarks.md").read_text("utf-8")
    assert [block["name"] for block in TABLE_BLOCK.finditer(text)] == ["smollm2", "ptb", "synthetic", "levels"]
    assert len(text.splitlines()) <= 150
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
