"""Prometheus' rules, as promtool finds them: each fires under its fault, is silent else, and says where to read on."""

import re

import pytest
import yaml

from tests.deploy.files import ALERTS, ROOT
from tests.deploy.monitoring.alert_cases import CASES, expect_alert, gauge, make_unit_test, requests
from tests.deploy.monitoring.prometheus import list_rules, needs_prometheus, run_promtool, write_files

RULES = {rule.get("alert") or rule["record"]: rule for rule in list_rules()}
EVERY_RULE = pytest.mark.parametrize("name", RULES)


def run_unit_tests(folder, *tests):
    path = folder / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": list(tests)}))
    return run_promtool("test", "rules", path)


def list_anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@needs_prometheus
def test_promtool_accepts_the_files(tmp_path):
    for words in (("check", "rules", ALERTS), ("check", "config", write_files(tmp_path, ["shortlist:8000"], "5s"))):
        result = run_promtool(*words)
        assert result.returncode == 0, result.stdout + result.stderr


def test_every_rule_has_a_case():
    assert RULES.keys() == CASES.keys()


@needs_prometheus
@EVERY_RULE
def test_an_alert_fires_under_its_fault(name, tmp_path):
    rule, case = RULES[name], CASES[name]
    result = run_unit_tests(tmp_path, make_unit_test(rule, case.fault, [expect_alert(rule, case.labels)]))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_prometheus
@EVERY_RULE
def test_an_alert_is_silent_else(name, tmp_path):
    assert CASES[name].silent
    tests = [make_unit_test(RULES[name], series, []) for series in CASES[name].silent]
    result = run_unit_tests(tmp_path, *tests)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_prometheus
def test_servers_that_are_no_target_any_more_are_not_ready(tmp_path):
    rule, others = RULES["ShortlistNotReady"], gauge("up", 'job="another",instance="s:8000"', 1)
    labels = {"job": "shortlist"}
    alert = expect_alert(rule, labels | {"instance": ""}) | {"exp_labels": labels | rule["labels"]}
    result = run_unit_tests(tmp_path, make_unit_test(rule, others, [alert]))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_prometheus
def test_a_disk_that_is_full_is_an_error_of_the_server(tmp_path):
    rule = RULES["ShortlistServerErrors"]
    series = requests("200", 980) | requests("507", 20)
    alert = expect_alert(rule, CASES["ShortlistServerErrors"].labels)
    result = run_unit_tests(tmp_path, make_unit_test(rule, series, [alert]))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_prometheus
@pytest.mark.parametrize(("late", "count"), [(600, 1), (400, 0)])
def test_a_server_that_computes_most_too_late_fails_and_a_client_in_a_hurry_is_none(tmp_path, late, count):
    rule = RULES["ShortlistServerErrors"]
    series = requests("200", 1000 - late) | requests("504", late)
    alerts = [expect_alert(rule, CASES["ShortlistServerErrors"].labels)][:count]
    result = run_unit_tests(tmp_path, make_unit_test(rule, series, alerts))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_prometheus
def test_a_case_that_is_wrong_would_be_seen(tmp_path):
    rule, case = RULES["ShortlistRefusals"], CASES["ShortlistRefusals"]
    assert run_unit_tests(tmp_path, make_unit_test(rule, case.fault, [])).returncode != 0


@EVERY_RULE
def test_runbooks_are_there(name):
    page, _, anchor = RULES[name]["annotations"]["runbook_url"].partition("#")
    assert anchor in list_anchors(ROOT / page)
