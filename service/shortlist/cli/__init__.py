"""The command line: `shortlist`, a module a command."""

from __future__ import annotations

from .dispatch import main

__all__ = ["main"]
