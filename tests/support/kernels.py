"""Targets of the native library that this processor has."""

from shortlist.errors import BadInput
from shortlist.kernels.native.library import TARGETS, open_target


def list_targets() -> list[str]:
    """Names of all of them, the portable one last; fails where the library is missing."""
    names = []
    for name in TARGETS:
        try:
            assert open_target(name) is not None, "the native library is missing: run `make native`"
        except BadInput:
            continue
        names.append(name)
    assert "portable" in names
    return names
