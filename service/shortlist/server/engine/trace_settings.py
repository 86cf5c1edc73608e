"""Trace settings, which clients of the Open Inference Protocol read and write: stored and shown, and no more.

There is no tracing. A setting that asks for some, or for a file, is refused.
"""

from __future__ import annotations

import re
from typing import Any

from shortlist.core.checks import cut
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import check_setting_names

TRACE_LEVEL, TRACE_FILE = "trace_level", "trace_file"
OFF = ["OFF"]
TRACE_DEFAULTS: dict[str, Any] = {
    TRACE_LEVEL: OFF,
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    TRACE_FILE: "",
}
DIGITS_PATTERN = "[0-9]{1,19}"  # as text: so the protocol has it
NUMBER_PATTERNS = {"trace_rate": DIGITS_PATTERN, "trace_count": f"-1|{DIGITS_PATTERN}", "log_frequency": DIGITS_PATTERN}
TRACE_FIELDS: dict[str, dict[str, Any]] = {name: {} for name in TRACE_DEFAULTS}  # of any type: null clears


class TraceSettings:
    """The settings that clients have written. Those of a model stand over the server's own."""

    def __init__(self) -> None:
        self.overrides: dict[str | None, dict[str, str]] = {}  # None: the server's own

    def describe(self, model: str | None = None) -> dict[str, Any]:
        """Every setting of the server, or of a model."""
        return TRACE_DEFAULTS | self.overrides.get(None, {}) | self.overrides.get(model, {})

    def update(self, changes: dict[str, Any], model: str | None = None) -> None:
        """Store every change, or none; None clears a setting. Raises BadInput."""
        check_setting_names(changes, TRACE_DEFAULTS, "trace")
        for name, value in changes.items():
            check_trace_setting(name, value)
        numbers = {name: value for name, value in changes.items() if name in NUMBER_PATTERNS}  # the others are fixed
        settings = self.overrides.get(model, {}) | numbers
        self.overrides[model] = {name: value for name, value in settings.items() if value is not None}


def check_trace_setting(name: str, value: Any) -> None:
    """Raise BadInput at a value that is neither None nor one that a server without tracing can have."""
    if value is None:
        return
    if name == TRACE_LEVEL:
        if value not in (OFF, OFF[0]):
            raise BadInput(f"trace_level is {cut(value)}, but tracing is not built in: only OFF is served")
    elif name == TRACE_FILE:
        if value != "":
            raise BadInput("trace_file cannot be set: tracing is not built in, so leave it out")
    elif not (isinstance(value, str) and re.fullmatch(NUMBER_PATTERNS[name], value)):
        raise BadInput(f'{name} is {cut(value)}: send a whole number as text, such as "{TRACE_DEFAULTS[name]}"')
