"""How an admission refuses."""

from __future__ import annotations

import pytest
from shortlist.errors import Overloaded

AGES = 1e6  # seconds: nobody minds waiting


def expect_refusal(action, *arguments):
    with pytest.raises(Overloaded) as excinfo:
        action(*arguments)
    assert excinfo.value.status == 429
    assert f"try again in {excinfo.value.retry_after} s" in str(excinfo.value)
    return excinfo.value
