"""What is logged, which clients may change while the server runs: an extension of the Open Inference Protocol."""

from __future__ import annotations

import logging
from typing import Any

from shortlist.core.checks import is_count, show
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import check_setting_names, read_flag

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
        check_setting_names(changes, LOG_FIELDS, "log")
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


def check_fixed_settings(changes: dict[str, Any]) -> None:
    """Raise BadInput at a change of what cannot be changed: no client may choose a file that is written."""
    for name, value in FIXED_SETTINGS.items():
        if changes.get(name, value) != value:
            raise BadInput(f"{name} cannot be set: the log goes to standard error in one format, so leave it out")


def check_verbose_level(level: Any) -> int:
    """Return the level if the server has it; raises BadInput."""
    if not is_count(level):
        raise BadInput(f"{VERBOSE_LEVEL} is {show(level)}: send a whole number from 0")
    return int(level)
