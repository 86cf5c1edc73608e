"""Series under which each alert fires, and series like them under which it stays silent.

Values are in promtool's notation: `0+3x60` is 0, 3, 6 ... 180, one value a minute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Series = dict[str, str]
Rule = dict[str, Any]
PLACEHOLDER = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
PLACE = 'job="shortlist",instance="s:8000"'
MODEL = f'{PLACE},model="lm",version="3"'
ALL_MINUTES = "x60"
MINUTES = 40  # at which alerts are looked at: longer than every window and every `for`


@dataclass(frozen=True)
class Case:
    """fault: values under which the alert fires. silent: sets of values under which it does not.

    labels: of the alert that fires, besides its name and severity.
    """

    fault: Series
    silent: tuple[Series, ...]
    labels: dict[str, str]


def requests(code: str, a_minute: float) -> Series:
    """So many requests a minute with this status."""
    return {f'shortlist_requests_total{{{MODEL},endpoint="topk",code="{code}"}}': f"0+{a_minute}{ALL_MINUTES}"}


def durations(seconds: float) -> Series:
    """Requests of which all take so long."""
    name = f'shortlist_request_duration_seconds_bucket{{{MODEL},endpoint="topk",le='
    return {
        f'{name}"{bound}"}}': f"0+{600 if seconds <= float(bound) else 0}{ALL_MINUTES}"
        for bound in ("0.05", "0.1", "0.2", "0.4", "+Inf")
    }


def rows(head: float, dense: float, plan: str = "svd") -> Series:
    """Rows a minute by who answered, of a model of this plan."""
    counters = {
        f'shortlist_rows_total{{{MODEL},answered="{who}"}}': f"0+{count}{ALL_MINUTES}"
        for who, count in (("head", head), ("dense", dense))
    }
    return counters | {f'shortlist_model_info{{{MODEL},plan="{plan}",method="m"}}': f"1{ALL_MINUTES}"}


def gauge(name: str, labels: str, value: float, late_value: float | None = None) -> Series:
    """A gauge that has a value all the time, or another one in the last minute alone."""
    values = f"{value}{ALL_MINUTES}" if late_value is None else f"{value}x{MINUTES - 1} {late_value}x20"
    return {f"{name}{{{labels}}}": values}


INSTANCE = {"instance": "s:8000"}
VERSION = {"model": "lm", "version": "3"}
UP = gauge("up", PLACE, 1)

CASES = {
    "ShortlistNotReady": Case(
        gauge("shortlist_ready", PLACE, 0) | UP,
        (
            gauge("shortlist_ready", PLACE, 1) | UP,
            gauge("shortlist_ready", PLACE, 1, 0) | UP,
            gauge("shortlist_ready", PLACE, 1) | UP | gauge("up", 'job="another",instance="s:8000"', 0),
        ),
        INSTANCE | {"job": "shortlist"},
    ),
    "ShortlistServerErrors": Case(
        requests("200", 980) | requests("500", 15) | requests("503", 15),
        (
            requests("200", 995) | requests("500", 5),
            requests("200", 900) | requests("400", 100),
            requests("200", 1000),
        ),
        INSTANCE,
    ),
    "ShortlistCanaryFailed": Case(
        gauge("shortlist_canary", MODEL, 0),
        (gauge("shortlist_canary", MODEL, 1), gauge("shortlist_canary", MODEL, 1, 0)),
        INSTANCE | VERSION | {"job": "shortlist"},
    ),
    "ShortlistPrecisionFell": Case(
        gauge("shortlist_precision_alarm", f'{MODEL},k="1"', 0)
        | gauge("shortlist_precision_alarm", f'{MODEL},k="5"', 1),
        (gauge("shortlist_precision_alarm", f'{MODEL},k="1"', 0),),
        INSTANCE | VERSION,
    ),
    "ShortlistVersionFailed": Case(
        gauge("shortlist_failed_versions", PLACE, 1),
        (gauge("shortlist_failed_versions", PLACE, 0), gauge("shortlist_failed_versions", PLACE, 0, 1)),
        INSTANCE | {"job": "shortlist"},
    ),
    "ShortlistRepositoryAway": Case(
        gauge("shortlist_repository_present", PLACE, 0),
        (gauge("shortlist_repository_present", PLACE, 1), gauge("shortlist_repository_present", PLACE, 1, 0)),
        INSTANCE | {"job": "shortlist"},
    ),
    "ShortlistOverloaded": Case(
        requests("200", 900) | requests("429", 100),
        (requests("200", 960) | requests("429", 40), requests("200", 1000)),
        INSTANCE,
    ),
    "ShortlistRefusals": Case(
        {f'shortlist_refusals_total{{{PLACE},reason="key"}}': f"0+90{ALL_MINUTES}"},
        (
            {f'shortlist_refusals_total{{{PLACE},reason="key"}}': f"0+30{ALL_MINUTES}"},
            # two reasons, of which neither is often enough
            {
                f'shortlist_refusals_total{{{PLACE},reason="{reason}"}}': f"0+45{ALL_MINUTES}"
                for reason in ("key", "host")
            },
        ),
        INSTANCE | {"reason": "key"},
    ),
    "ShortlistSlow": Case(durations(0.15), (durations(0.04), durations(0.09)), {"model": "lm"}),
    "ShortlistMostlyDense": Case(
        rows(head=400, dense=600),
        (rows(head=600, dense=400), rows(head=0, dense=1000, plan="full")),
        VERSION,
    ),
}


def fill(annotation: str, labels: dict[str, str]) -> str:
    """What an annotation says of an alert; raises KeyError where it names a label that the alert does not have."""
    return PLACEHOLDER.sub(lambda match: labels[match[1]], annotation)


def expect_alert(rule: Rule, labels: dict[str, str]) -> dict[str, Any]:
    """The alert as promtool is to find it."""
    annotations = {name: fill(text, labels) for name, text in rule["annotations"].items()}
    return {"exp_labels": labels | rule["labels"], "exp_annotations": annotations}


def make_unit_test(rule: Rule, series: Series, expected: list[dict[str, Any]]) -> dict[str, Any]:
    """One test of promtool: that these alerts of a rule fire under these series, and no others."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"alertname": rule["alert"], "eval_time": f"{MINUTES}m", "exp_alerts": expected}],
    }
