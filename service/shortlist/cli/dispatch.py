"""`shortlist COMMAND ...`: import the command's module, run it, print errors as one line.

A command's module has `configure(parser)` and `run(args) -> int`. It is imported only when its command is run, so
`shortlist --help` works on the base install.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from shortlist import __version__
from shortlist.core.checks import cut
from shortlist.core.extras import require
from shortlist.errors import ShortlistError, is_lack

COMMANDS = {
    "capture": (
        "shortlist_exporter.commands.capture",
        "hidden states and output weights of a causal language model, from text",
    ),
    "export": ("shortlist_exporter.commands.export", "turn a weight matrix and contexts into a bundle"),
    "tune": ("shortlist_exporter.commands.tune", "find the fastest head that keeps a promise, and export it"),
    "report": (
        "shortlist_exporter.commands.report",
        "one page of pictures about a bundle, its promise and your contexts",
    ),
    "shard": ("shortlist_exporter.commands.shard", "cut a bundle into bundles of class ranges"),
    "compact": (
        "shortlist_exporter.commands.compact",
        "fold the changes of a model's items into a new version",
    ),
    "check": ("shortlist.cli.check", "verify a bundle's hashes, load it, replay its calibration"),
    "query": ("shortlist.cli.query", "the top k classes of contexts in a file"),
    "evaluate": (
        "shortlist.cli.evaluate",
        "hold a bundle against its dense head, and its own promise, on your contexts",
    ),
    "diff": ("shortlist.cli.diff", "how much two bundles agree, and what they were made with, side by side"),
    "serve": ("shortlist.cli.serve", "answer over HTTP from a repository of bundles"),
    "playground": (
        "shortlist_exporter.commands.playground",
        "a page: the next words of a text by a head and by the dense layer",
    ),
}

LAST_STANDARD_STREAM = 2  # the number of standard errors
MAX_REASON_CHARACTERS = 200
SIGNAL_EXIT_CODE = 128  # to which shells add the number of the signal that ended a process


class Parser(argparse.ArgumentParser):
    """An argument parser whose usage errors are one line and exit with 2."""

    def error(self, message: str) -> NoReturn:
        """Print `message` as one line and exit with 2."""
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def format_commands() -> str:
    """Format the list of commands, one on each line."""
    return "\n".join(f"  {name:<10} {help_}" for name, (_, help_) in COMMANDS.items())


def parse_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Split `argv` into a command's name and that command's arguments."""
    parser = Parser(
        prog="shortlist",
        description="Top-k decoding of large output layers.",
        epilog=f"commands:\n{format_commands()}\n\n`shortlist COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"shortlist {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help="one of the commands below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="the command's own arguments")
    args = parser.parse_args(argv)
    return args.command, args.rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0, 1 (failed), 2 (usage).

    A command that a signal stops ends the process by that signal, once it has cleaned up.
    """
    fill_standard_streams()
    name, rest = parse_command(sys.argv[1:] if argv is None else argv)
    signals = handle_stop_signals()
    try:
        return run_command(name, rest)
    except ShortlistError as error:
        print(f"shortlist {name}: {error}", file=sys.stderr)
    except BrokenPipeError:
        pass  # the reader of the output closed it, as `head` does
    except OSError as error:
        print(f"shortlist {name}: {describe_os_error(error)}", file=sys.stderr)
    except KeyboardInterrupt as stop:
        return end_by_signal(name, *stop.args)
    except Exception as error:
        if signals:  # compiled code raised an error of its own in place of the interrupt
            return end_by_signal(name, signals[-1])
        if not is_lack(error):
            raise
        print(f"shortlist {name}: {describe_lack(error)}", file=sys.stderr)
    release_stdout()
    return 1


def run_command(name: str, rest: Sequence[str]) -> int:
    """Import the command's module, parse its arguments and run it; returns its exit code."""
    module_name, description = COMMANDS[name]
    module = require(module_name)
    parser = Parser(
        prog=f"shortlist {name}",
        description=module.__doc__ or description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    code = int(module.run(parser.parse_args(rest)))
    sys.stdout.flush()
    return code


def fill_standard_streams() -> None:
    """Open the null device in place of standard input, output and errors that are closed.

    A file or a socket would get their numbers, and with them all that libraries print.
    """
    for number in range(LAST_STANDARD_STREAM + 1):
        if not is_open(number):  # then it is the lowest free number, which the null device gets
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout, sys.stderr = (stream or os.fdopen(number, "w") for number, stream in ((1, sys.stdout), (2, sys.stderr)))


def is_open(descriptor: int) -> bool:
    """Whether the process has a file of this number."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def handle_stop_signals() -> list[int]:
    """Let SIGTERM, by which a scheduler ends a job, do as Ctrl-C does: a command that is stopped leaves nothing behind.

    Returns the list to which the numbers of the signals that come are added. Ctrl-C stays ignored where it was, as in
    the background of a shell. `serve` handles both in its own way once it listens.
    """
    numbers: list[int] = []

    def interrupt(number: int, _: object) -> NoReturn:
        numbers.append(number)
        raise KeyboardInterrupt(number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
    return numbers


def end_by_signal(name: str, number: int = signal.SIGINT) -> int:
    """Say that the command was stopped, and end the process by the signal, so that its parent sees who ended it.

    Returns the exit code that stands for it where the signal does nothing, as in the first process of a container.
    """
    print(f"shortlist {name}: stopped", file=sys.stderr)
    release_stdout()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return SIGNAL_EXIT_CODE + number


def describe_os_error(error: OSError) -> str:
    """Describe in one sentence what the operating system refused."""
    reason = error.strerror or str(error)
    if error.filename is None:
        return f"the system refused ({reason}): mend that, then run the same command again"
    return f"{error.filename} cannot be used ({reason}): mend that, then run the same command again"


def describe_lack(error: Exception) -> str:
    """Describe in one sentence that there was too little memory, or too few threads."""
    reason = f"{type(error).__name__}: {cut(error, MAX_REASON_CHARACTERS)}".rstrip(": ")
    return f"the system refused ({reason}): give this process more memory or threads, then run the same command again"


def release_stdout() -> None:
    """Flush stdout, or discard what is left if it is closed, so that Python prints no error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
