"""Packages that are unpacked for the texts in them, never installed: Debian's by apt-get, Python's by pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist.errors import NotFound

DOWNLOAD_SECONDS = 300.0  # after which a package counts as one that cannot be had


@dataclass(frozen=True)
class Packages:
    """A folder in which packages are kept, unpacked."""

    folder: Path

    def unpack_debian(self, name: str) -> Path:
        """The folder with the files of a Debian package; raises NotFound where it cannot be downloaded."""
        target = self.folder / name
        if not target.is_dir():
            archive = self.download(name, ["apt-get", "download", "-qq", name], "*.deb")
            partial = archive.parent / "files"
            run_command(["dpkg-deb", "-x", str(archive), str(partial)], archive.parent)
            partial.replace(target)
        return target

    def unpack_python(self, name: str) -> Path:
        """The folder with the files of a Python wheel; raises NotFound where it cannot be downloaded."""
        target = self.folder / name
        if not target.is_dir():
            command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:", name]
            archive = self.download(name, command, "*.whl")
            partial = archive.parent / "files"
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(partial)
            partial.replace(target)
        return target

    def download(self, name: str, command: Sequence[str], pattern: str) -> Path:
        """Run a command that downloads a package into an empty folder; the file's whole path, which fits `pattern`."""
        folder = self.folder / f".{name}.download"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run_command(command, folder)
        archives = list(folder.glob(pattern))
        if not archives:
            raise NotFound(f"`{' '.join(command)}` downloaded no {pattern} file")
        return archives[0].resolve()  # commands run in the folder itself


def run_command(command: Sequence[str], folder: Path) -> None:
    """Run a command in a folder; raises NotFound with the last line that it printed where it fails."""
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFound(f"`{command[0]}` cannot be run here ({error})") from error
    if result.returncode:
        line = " ".join([Path(command[0]).name, *command[1:]])
        said = (result.stderr or result.stdout).strip().splitlines() or ["it said nothing"]
        raise NotFound(f"`{line}` failed ({said[-1]})")
