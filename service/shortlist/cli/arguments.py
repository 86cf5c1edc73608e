"""Command-line arguments that commands share, and their types: a value that does not fit is a usage error at once."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError


def parse_positive_int(text: str) -> int:
    """Parse a whole number from 1; raises ArgumentTypeError."""
    return parse_from(text, 1)


def parse_natural_int(text: str) -> int:
    """Parse a whole number from 0; raises ArgumentTypeError."""
    return parse_from(text, 0)


def parse_from(text: str, least: int) -> int:
    """Parse a whole number from `least`; raises ArgumentTypeError."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ArgumentTypeError(f"'{text}' is not a whole number from {least}")
    return number


def parse_depths(text: str) -> tuple[int, ...]:
    """Parse whole numbers from 1 with commas between them, ascending and each once; raises ArgumentTypeError."""
    return tuple(sorted({parse_from(part, 1) for part in text.split(",")}))


def parse_precision(text: str) -> tuple[int, float]:
    """Parse `10=0.97` as (10, 0.97), a P@10; raises ArgumentTypeError."""
    k, equals, share_text = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"'{text}' is not K=SHARE, as in 10=0.97")
    return parse_from(k, 1), parse_share(share_text)


def parse_share(text: str) -> float:
    """Parse a number over 0, up to 1; raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"'{text}' is not a share over 0, up to 1")
    return number


def add_device(parser: ArgumentParser) -> None:
    """Add the device that heads answer on."""
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")


def add_threads(parser: ArgumentParser, of: str = "each session") -> None:
    """Add the number of threads. of: what takes so many, in words."""
    parser.add_argument(
        "--threads", type=parse_positive_int, metavar="N", help=f"threads of {of} (default: all granted)"
    )
