"""A request for the head of a response alone, as `curl -I` and `wget --spider` send it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_head_is_answered_wherever_get_is(small_server):
    http = small_server.http
    for path in ("/healthz", "/readyz", "/metrics", "/v2/health/ready", "/v1/models", "/v2/models/lm/ready", "/docs"):
        head = http.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert http.get(path).status_code == 200
    assert (http.head("/v1/topk").status_code, http.head("/nothing").status_code) == (405, 404)
    assert http.head("/v2").headers["content-length"] == http.get("/v2").headers["content-length"]
