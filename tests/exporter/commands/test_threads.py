"""How many threads the commands let torch use."""

import pytest
import torch
from shortlist.cli import main
from shortlist_exporter.commands import compact, export, report, shard, threads, tune
from shortlist_exporter.commands.threads import limit_torch


@pytest.fixture(autouse=True)
def torch_threads():
    """Put torch's threads back after a test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "would", "granted", "expected"),
    [(3, 8, 4, 3), (3, 8, 2, 2), (None, 8, 2, 2), (None, 1, 2, 1), (1, 8, 8, 1)],
)
def test_torch_takes_what_is_given_but_no_more_than_is_granted(monkeypatch, given, would, granted, expected):
    torch.set_num_threads(would)
    monkeypatch.setattr(threads, "count_available_threads", lambda: granted)
    limit_torch(given)
    assert torch.get_num_threads() == expected


COMMANDS = {
    export: (["--weights", "absent", "--out", "lm/1"], 5),
    report: (["absent"], 5),
    shard: (["absent", "--shards", "2", "--out", "out"], 5),
    compact: (["absent", "--item-changes", "changes"], 5),
    tune: (["--weights", "absent", "--contexts", "absent", "--target-p1", ".9", "--out", "lm/1"], None),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_limit_torch_before_they_read(monkeypatch, command):
    arguments, expected = COMMANDS[command]
    given = []
    monkeypatch.setattr(command, "limit_torch", given.append)
    assert main([command.__name__.rpartition(".")[2], *arguments, "--threads", "5"]) == 1
    assert given == [expected]
