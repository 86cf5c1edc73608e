"""An exported head on disk: its manifest, its files, and the repository that bundles lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reader import Bundle

__all__ = ["Bundle"]


def __getattr__(name: str) -> Any:
    """Import `Bundle` on first use: a client takes names from this package, and waits for no manifest."""
    if name != "Bundle":
        raise AttributeError(f"module 'shortlist.bundle' has no attribute '{name}'")
    from .reader import Bundle

    globals()[name] = Bundle
    return Bundle
