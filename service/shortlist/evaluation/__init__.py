"""How good a head is: measured against its own dense head, and against gold classes."""

from __future__ import annotations

from .evaluator import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
