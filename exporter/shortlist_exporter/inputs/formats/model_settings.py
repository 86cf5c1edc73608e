"""Logit scale and soft-cap, as models' settings name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Some multiply the logits, some divide.
LOGIT_SCALE_SETTINGS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
SOFT_CAP_SETTINGS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def read_factors(config: Any, names: Sequence[str]) -> list[float]:
    """The settings of these names that are numbers logits can be scaled or capped with."""
    values = [getattr(config, name, None) for name in names]
    return [float(x) for x in values if isinstance(x, int | float) and 0 < x < float("inf")]
