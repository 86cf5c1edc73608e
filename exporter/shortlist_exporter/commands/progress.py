"""How far a command is, on stderr: a bar with time left on a terminal, plain lines where stderr is a file or a pipe."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from shortlist_exporter.core.types import Progress

LINE_SECONDS = 10.0  # between two lines of one stage
PERCENTAGE = re.compile(r" \d+%(?=$|, )")  # in a stage's name: it is the same stage at 10% and at 20%


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """Show progress; gives the function (stage, done, total) that moves it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines(console, description)
        yield lines.report
        lines.finish()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        task = bars.add_task(description, total=None)

        def report(stage: str, done: int, total: int) -> None:
            bars.update(task, description=stage, completed=done, total=total)

        yield report


class ProgressLines:
    """One line when a stage begins, one every `LINE_SECONDS` while it lasts, one when it is done.

    Before each are the seconds since the start.
    """

    def __init__(self, console: Console, description: str) -> None:
        """Print the first line."""
        self.console = console
        self.start = self.last_time = time.monotonic()
        self.stage = self.last_line = ""
        self.print_line(description)

    def report(self, stage: str, done: int, total: int) -> None:
        """Print a line, if it is time for one."""
        name = PERCENTAGE.sub("", stage)
        is_new, is_late = name != self.stage, time.monotonic() - self.last_time >= LINE_SECONDS
        self.stage = name
        if is_new or is_late or done == total:
            self.print_line(f"{stage}: {done:,} of {total:,}" if total > 1 else stage)

    def finish(self) -> None:
        """Print the last line."""
        self.print_line("finished")

    def print_line(self, line: str) -> None:
        """Print a line at once, unless it is the last one again."""
        now = time.monotonic()
        if line != self.last_line:
            text = f"{now - self.start:7,.1f} s  {line}"
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.last_line, self.last_time = line, now
