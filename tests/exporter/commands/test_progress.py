"""Progress in a file or a pipe: plain lines as it goes; on a terminal a bar."""

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.commands import progress
from shortlist_exporter.commands.progress import progress_bar


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def read_lines(capsys):
    """What was printed: seconds and text of each line."""
    printed = capsys.readouterr()
    assert printed.out == ""
    return [tuple(line.strip().split(" s  ")) for line in printed.err.splitlines()]


def test_a_line_for_each_stage_and_one_when_all_is_done(capsys, clock):
    with progress_bar("reading") as report:
        assert read_lines(capsys) == [("0.0", "reading")], "it is printed as it happens"
        clock[0] += 1
        report("fit", 0, 1)
        assert read_lines(capsys) == [("1.0", "fit")]
        report("fit", 0, 1)
        report("exact answers", 64, 1000)
        for done in range(128, 960, 64):
            clock[0] += 1
            report("exact answers", done, 1000)
        report("exact answers", 1000, 1000)
    assert read_lines(capsys) == [
        ("1.0", "exact answers: 64 of 1,000"),
        ("11.0", "exact answers: 704 of 1,000"),
        ("14.0", "exact answers: 1,000 of 1,000"),
        ("14.0", "finished"),
    ]


def test_a_stage_that_counts_percents_is_one_stage(capsys, clock):
    with progress_bar("reading") as report:
        for percent in range(0, 100, 10):
            clock[0] += 2
            report(f"svd 1 of 8: fit {percent}%", 1, 1)
    lines = [text for _, text in read_lines(capsys)]
    assert lines[0] == "reading"
    assert lines[-1] == "finished"


def test_nothing_is_finished_where_an_error_ends_it(capsys, clock):
    def fail():
        with progress_bar("reading") as report:
            report("fit", 0, 3)
            raise BadInput("no")

    with pytest.raises(BadInput):
        fail()
    assert read_lines(capsys) == [("0.0", "reading"), ("0.0", "fit: 0 of 3")]


def test_a_terminal_has_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("reading") as report:
        report("fit", 1, 3)
    assert "1/3" in capsys.readouterr().err
