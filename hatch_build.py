"""Compiles the native library into wheels and editable installs; without a C compiler they go without it."""

import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE_FOLDER = "service/shortlist/kernels/native"


def name_platform(library: Path) -> str:
    """Return the platforms that a library runs on: any Linux whose glibc has the symbols that it asks for (PEP 600)."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    versions = [(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())]
    if not platform.startswith("linux_") or not versions:
        return platform
    major, minor = max(versions)
    return platform.replace("linux_", f"manylinux_{major}_{minor}_")


class NativeBuildHook(BuildHookInterface):
    """Runs the library's own build script; the wheel is one of this platform then, for every Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        script = Path(self.root) / NATIVE_FOLDER / "build.py"
        build = runpy.run_path(str(script))
        library = script.with_name(build["LIBRARY_NAME"])
        is_current = library.exists() and build["hash_sources"]().encode() in library.read_bytes()
        if version != "editable" or not is_current:
            subprocess.run([sys.executable, script], check=False)
        if not library.exists():  # one that an earlier stage built is taken as it is
            self.app.display_warning(
                "no native library: graphs answer in place of compiled loops, up to 15 times slower"
            )
            return
        build_data["artifacts"].append(f"{NATIVE_FOLDER}/{library.name}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{name_platform(library)}"
