"""Files of the machine as texts."""

from __future__ import annotations

import gzip
import re
import sysconfig
from collections.abc import Iterable, Iterator
from email import message_from_string
from importlib import metadata
from pathlib import Path

SMALLEST_BYTES = 1500  # of a file that is a document
LARGEST_BYTES = 2_000_000
SHELL_START = re.compile(rb"#! ?(/usr)?/bin/(env )?(ba|da)?sh\b")
CPLUSPLUS = re.compile(r"-\*- C\+\+ -\*-|^ *(namespace|template|class|public|using)\b", re.MULTILINE)
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
INSTALLED = Path(sysconfig.get_paths()["purelib"])


def list_files(folders: Iterable[Path], pattern: str) -> list[Path]:
    """The files of the folders, at any depth, whose names fit `pattern` and that are of a document's size; sorted."""
    paths = {path for folder in folders if folder.is_dir() for path in folder.rglob(pattern)}
    return sorted(path for path in paths if is_document(path))


def is_document(path: Path) -> bool:
    """Whether it is a file itself, no link, of a document's size."""
    try:
        return path.is_file() and not path.is_symlink() and SMALLEST_BYTES <= path.stat().st_size <= LARGEST_BYTES
    except OSError:
        return False


def read_files(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of those files that are UTF-8, unpacked where they are gzipped."""
    for path in paths:
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            yield data.decode("utf-8").replace("\r\n", "\n")
        except (OSError, EOFError, UnicodeDecodeError):
            continue


def list_shell_scripts() -> list[Path]:
    """Scripts of the system whose first line names a Bourne shell."""
    folders = [Path(name) for name in ("/etc", "/usr/bin", "/usr/sbin", "/var/lib/dpkg/info")]
    return [path for path in list_files(folders, "*") if is_shell_script(path)]


def is_shell_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(SHELL_START.match(file.read(32)))
    except OSError:
        return False


def read_descriptions() -> Iterator[str]:
    """What the installed Python packages say about themselves in Markdown."""
    for distribution in sorted(metadata.distributions(), key=lambda each: each.name):
        message = message_from_string(distribution.read_text("METADATA") or "")
        text = message.get_payload()
        if "markdown" in str(message["Description-Content-Type"]) and isinstance(text, str):
            yield text
