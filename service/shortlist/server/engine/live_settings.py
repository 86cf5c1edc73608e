"""Settings that clients change while the server runs: what is logged, and what would be traced.

Both belong to extensions of the Open Inference Protocol that its clients expect a server to have.
"""

from __future__ import annotations

import logging
from typing import Any

from shortlist.core.checks import cut, is_count
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import read_flag

VERBOSE_LEVEL = "log_verbose_level"
SWITCHES = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
LEVEL_BY_NAME = {VERBOSE_LEVEL: logging.DEBUG} | SWITCHES  # from the one that logs most
LEVEL_WITHOUT = dict(zip(LEVEL_BY_NAME, [*SWITCHES.values(), logging.CRITICAL], strict=True))  # when turned off
FIXED_SETTINGS = {"log_file": "", "log_format": "default"}
LOG_FIELDS: dict[str, dict[str, Any]] = {
    **{name: {"type": "boolean"} for name in SWITCHES},
    VERBOSE_LEVEL: {"type": "integer", "minimum": 0},
    **{name: {"type": "string"} for name in FIXED_SETTINGS},
}
TRACE_DEFAULTS: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
}
TRACE_FIELDS: dict[str, dict[str, Any]] = {name: {} for name in TRACE_DEFAULTS}

log = logging.getLogger("shortlist")


class LogSettings:
    """The level of the logger `shortlist`, as switches: each one that is on implies those that log less."""

    def __init__(self) -> None:
        self.verbose_level = 1  # shown while the logger is at debug

    def describe(self) -> dict[str, Any]:
        level = log.getEffectiveLevel()
        switches = {name: level <= switch for name, switch in SWITCHES.items()}
        return {**switches, VERBOSE_LEVEL: self.verbose_level if level <= logging.DEBUG else 0, **FIXED_SETTINGS}

    def update(self, changes: dict[str, Any]) -> None:
        """Apply every change, or none; raises BadInput.

        Turning a switch off turns off those that log more, turning one on turns on those that log less.
        """
        check_names(changes, LOG_FIELDS, "log")
        check_fixed_settings(changes)
        switches = {name: read_flag(changes, name) for name in SWITCHES if name in changes}
        if VERBOSE_LEVEL in changes:
            switches[VERBOSE_LEVEL] = check_verbose_level(changes[VERBOSE_LEVEL]) > 0
        level = choose_level(switches, log.getEffectiveLevel())
        self.verbose_level = changes.get(VERBOSE_LEVEL) or self.verbose_level
        log.setLevel(level)


def choose_level(switches: dict[str, bool], level: int) -> int:
    """The level after `switches` were turned on or off; raises BadInput where they contradict each other."""
    on = [LEVEL_BY_NAME[name] for name, value in switches.items() if value]
    off = [LEVEL_BY_NAME[name] for name, value in switches.items() if not value]
    if on and off and min(on) <= max(off):
        raise BadInput("the log settings contradict each other: what is logged includes all that is graver")
    least = max([level, *(LEVEL_WITHOUT[name] for name, value in switches.items() if not value)])
    return min([least, *on])


def check_names(changes: dict[str, Any], defaults: dict[str, Any], kind: str) -> None:
    """Raise BadInput at a setting that does not exist."""
    unknown = next((name for name in changes if name not in defaults), None)
    if unknown is not None:
        raise BadInput(f"there is no {kind} setting '{cut(unknown)}': known are {', '.join(defaults)}")


def check_fixed_settings(changes: dict[str, Any]) -> None:
    """Raise BadInput at a change of what cannot be changed: no client may choose a file that is written."""
    for name, value in FIXED_SETTINGS.items():
        if changes.get(name, value) != value:
            raise BadInput(f"{name} cannot be set: the log goes to standard error in one format, so leave it out")


def check_verbose_level(level: Any) -> int:
    """Return the level if the server has it; raises BadInput."""
    if not is_count(level):
        raise BadInput(f"{VERBOSE_LEVEL} is {cut(level)}: send a whole number from 0")
    return int(level)


class TraceSettings:
    """Trace settings that are kept and shown, those of a model over those of the server; nothing is traced."""

    def __init__(self) -> None:
        self.overrides: dict[str | None, dict[str, Any]] = {}

    def describe(self, model: str | None = None) -> dict[str, Any]:
        """Every setting of the server, or of a model."""
        return TRACE_DEFAULTS | self.overrides.get(None, {}) | self.overrides.get(model, {})

    def update(self, changes: dict[str, Any], model: str | None = None) -> None:
        """Apply every change, or none; None clears a setting. Raises BadInput."""
        check_names(changes, TRACE_DEFAULTS, "trace")
        values = {name: None if value is None else check_trace_value(name, value) for name, value in changes.items()}
        settings = self.overrides.get(model, {}) | values
        self.overrides[model] = {name: value for name, value in settings.items() if value is not None}


def check_trace_value(name: str, value: Any) -> str | list[str]:
    """One setting as it is shown; raises BadInput."""
    if name == "trace_level":
        if value not in ("OFF", ["OFF"]):
            raise BadInput(f"trace_level is {cut(value)}, but tracing is not built in: only OFF is served")
        return ["OFF"]
    if name == "trace_file":
        if value != "":
            raise BadInput("trace_file cannot be set: tracing is not built in, so leave it out")
        return ""
    return check_number_text(name, value)


def check_number_text(name: str, value: Any) -> str:
    """A number that travels as text, at least 0, or -1 for a trace_count without end; raises BadInput."""
    text = value if isinstance(value, str) else ""
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number and not (name == "trace_count" and text == "-1"):
        raise BadInput(f'{name} is {cut(value)}: send a whole number as text, such as "{TRACE_DEFAULTS[name]}"')
    return text
