from benchmarks.common.markdown import LINE_WIDTH
from benchmarks.papers.common import command


def test_prose_of_a_page_is_wrapped_and_its_tables_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "DOCS", tmp_path)
    row = f"| {'wide ' * 50}|"
    assert command.write_page("page", "page.md", lambda: f"# Page\n\n{'prose ' * 50}\n\n{row}\n") == 0
    lines = (tmp_path / "page.md").read_text("utf-8").splitlines()
    assert row in lines
    assert all(len(line) <= LINE_WIDTH for line in lines if line != row)


def test_no_page_leaves_the_one_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "DOCS", tmp_path)
    assert command.write_page("page", "page.md", lambda: None) == 0
    assert not list(tmp_path.iterdir())
