"""An exported head on disk: its manifest, its files, and the repository that bundles lie in."""

from __future__ import annotations

from .reader import Bundle

__all__ = ["Bundle"]
