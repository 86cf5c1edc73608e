"""Settings that operators change while the server runs: what is logged, and what would be traced."""

from __future__ import annotations

import logging
from typing import Any

from shortlist.core.checks import cut, is_count
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import flag

SWITCHES = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
SILENT = logging.CRITICAL
VERBOSE = "log_verbose_level"
FIXED = {"log_file": "", "log_format": "default"}
LOG_FIELDS: dict[str, dict[str, Any]] = {
    **{name: {"type": "boolean"} for name in SWITCHES},
    VERBOSE: {"type": "integer", "minimum": 0},
    **{name: {"type": "string"} for name in FIXED},
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
    """What the logger `shortlist` logs: its level is the only truth, so a louder switch implies the quieter ones."""

    def __init__(self) -> None:
        """The level stays as it is."""
        self.verbose = 1

    def shown(self) -> dict[str, Any]:
        """Every setting."""
        level = log.getEffectiveLevel()
        switches = {name: level <= least for name, least in SWITCHES.items()}
        return {**switches, VERBOSE: self.verbose if level <= logging.DEBUG else 0, **FIXED}

    def update(self, changes: dict[str, Any]) -> None:
        """Take every change, or none; raises BadInput.

        A switch turned off turns off what is louder, one turned on turns on what is quieter.
        """
        check_names(changes, LOG_FIELDS, "log")
        check_fixed(changes)
        wanted = {name: flag(changes, name) for name in SWITCHES if name in changes}
        if VERBOSE in changes:
            wanted[VERBOSE] = count_of(changes) > 0
        level = level_of(wanted, log.getEffectiveLevel())
        self.verbose = changes.get(VERBOSE) or self.verbose
        log.setLevel(level)


def level_of(wanted: dict[str, bool], level: int) -> int:
    """The level after switches were turned on or off; raises BadInput where they contradict each other."""
    steps = {VERBOSE: logging.DEBUG} | SWITCHES
    on = [steps[name] for name, value in wanted.items() if value]
    off = [steps[name] for name, value in wanted.items() if not value]
    if on and off and min(on) <= max(off):
        raise BadInput("the log settings contradict each other: what is logged includes all that is graver")
    above = {step: least for step, least in zip(steps.values(), [*SWITCHES.values(), SILENT], strict=True)}
    loudest = max([level, *(above[step] for step in off)])
    return min([loudest, *on])


def check_names(changes: dict[str, Any], known: dict[str, Any], what: str) -> None:
    """Raise BadInput at a setting that there is not."""
    unknown = next((name for name in changes if name not in known), None)
    if unknown is not None:
        raise BadInput(f"there is no {what} setting '{cut(unknown)}': known are {', '.join(known)}")


def check_fixed(changes: dict[str, Any]) -> None:
    """Raise BadInput at a change of what cannot be changed: no client may choose a file that is written."""
    for name, value in FIXED.items():
        if changes.get(name, value) != value:
            raise BadInput(f"{name} cannot be set: the log goes to standard error in one format, so leave it out")


def count_of(changes: dict[str, Any]) -> int:
    """The verbose level; raises BadInput."""
    level = changes[VERBOSE]
    if not is_count(level):
        raise BadInput(f"{VERBOSE} is {cut(level)}: send a whole number from 0")
    return int(level)


class TraceSettings:
    """Settings that are kept and shown, those of a model over those of the server; nothing is traced."""

    def __init__(self) -> None:
        """Everything at its default."""
        self.changed: dict[str | None, dict[str, Any]] = {}

    def shown(self, model: str | None = None) -> dict[str, Any]:
        """Every setting of the server, or of a model."""
        return TRACE_DEFAULTS | self.changed.get(None, {}) | self.changed.get(model, {})

    def update(self, changes: dict[str, Any], model: str | None = None) -> None:
        """Take every change, or none; None clears a setting. Raises BadInput."""
        check_names(changes, TRACE_DEFAULTS, "trace")
        checked = {name: None if value is None else trace_value(name, value) for name, value in changes.items()}
        merged = self.changed.get(model, {}) | checked
        self.changed[model] = {name: value for name, value in merged.items() if value is not None}


def trace_value(name: str, value: Any) -> str | list[str]:
    """One setting as it is shown; raises BadInput."""
    if name == "trace_level":
        if value not in ("OFF", ["OFF"]):
            raise BadInput(f"trace_level is {cut(value)}, but tracing is not built in: only OFF is served")
        return ["OFF"]
    if name == "trace_file":
        if value != "":
            raise BadInput("trace_file cannot be set: tracing is not built in, so leave it out")
        return ""
    return number_text(name, value)


def number_text(name: str, value: Any) -> str:
    """A number that travels as text, at least 0, or -1 for a trace_count without end; raises BadInput."""
    text = value if isinstance(value, str) else ""
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number and not (name == "trace_count" and text == "-1"):
        raise BadInput(f'{name} is {cut(value)}: send a whole number as text, such as "{TRACE_DEFAULTS[name]}"')
    return text
