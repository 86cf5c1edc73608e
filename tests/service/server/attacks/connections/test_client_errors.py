"""What clients can bring about by themselves wakes nobody: it is counted, but under no code that an alert is about."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.files import ALERTS
from tests.service.server.attacks.wire import INFER, ROWS, converse, request, statuses, topk_body

pytestmark = pytest.mark.slow

CONTEXTS = ROWS[:1].tolist()


def ask(path="/v1/topk", *headers, **fields):
    return request(path, json.dumps({"model": "lm", "contexts": CONTEXTS, "k": 2, **fields}).encode(), *headers)


ATTACKS = {
    "no time to compute it": (ask(timeout=1e-9), 504),
    "no time, in the other protocol": (
        request(
            INFER,
            json.dumps({
                "inputs": [{"name": "context", "shape": [1, 16], "datatype": "FP32", "data": CONTEXTS[0]}],
                "parameters": {"k": 2, "timeout": 1},
            }).encode(),
        ),
        504,
    ),
    "an encoding that is not served": (request("/v1/topk", topk_body(), "Content-Encoding: br"), 415),
    "damaged compression": (request("/v1/topk", topk_body(), "Content-Encoding: gzip"), 400),
    "a model that is not there": (ask(model="nope"), 404),
    "a version that is not there": (ask(version=99), 404),
    "no JSON": (request("/v1/topk", b"{"), 400),
    "numbers that overflow": (ask(contexts=[[3e38] * 16]), 400),
    "too many classes": (ask(k=301), 400),
    "an answer that is too large": (ask(k=10**9), 413),
    "labels there are none of": (ask(model="dense", labels=True), 400),
}  # fmt: skip


def read_codes(server):
    """How many requests ended with each code."""
    counts: dict[str, float] = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            if sample.name == "shortlist_requests_total":
                counts[sample.labels["code"]] = counts.get(sample.labels["code"], 0) + sample.value
    return counts


def find_alarming_codes():
    """The pattern of the codes that the alert of the server's own errors counts."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    (expression,) = [rule["expr"] for rule in rules if rule["alert"] == "ShortlistServerErrors"]
    (pattern,) = re.findall(r'shortlist_requests_total\{code=~"([^"]+)"\}', expression)
    return re.compile(pattern)


def test_the_alert_is_about_the_servers_own_errors():
    pattern = find_alarming_codes()
    assert all(pattern.fullmatch(code) for code in ("500", "503"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_errors_that_clients_make_fire_no_alert(server, attack):
    content, status = ATTACKS[attack]
    before = read_codes(server)
    assert statuses(converse(server, content * 3))[:1] == [status]
    after = read_codes(server)
    changed = {code for code in after if after[code] != before.get(code, 0)}
    assert changed == {str(status)}
    assert not find_alarming_codes().fullmatch(str(status))
