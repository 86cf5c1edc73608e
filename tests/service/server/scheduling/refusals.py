"""How an admission refuses."""

from __future__ import annotations

import pytest
from shortlist.errors import Overloaded

AGES = 1e6  # seconds: nobody minds waiting


def check_refused(action, *arguments):
    with pytest.raises(Overloaded) as refusal:
        action(*arguments)
    assert refusal.value.status == 429
    assert f"try again in {refusal.value.retry_after} s" in str(refusal.value)
    return refusal.value
