"""The table of endpoints, and the routes that document it."""

from __future__ import annotations

import pytest
from shortlist.server.app import create_app
from shortlist.server.engine.endpoints import ENDPOINT_NAMES, ENDPOINTS, PATH_CACHE_ENTRIES, EndpointMatcher
from shortlist.server.lifecycle.releases import ReleaseRules, Releases
from shortlist.server.settings import Settings

PATHS = {
    "/v1/topk": ("topk", {}),
    "/v1/score": ("score", {}),
    "/v1/beam/step": ("beam", {}),
    "/v2/models/lm/infer": ("infer", {"name": "lm"}),
    "/v2/models/lm/versions/7/infer": ("infer", {"name": "lm", "version": "7"}),
    "/v2/models/l m/infer": ("infer", {"name": "l m"}),
}


@pytest.fixture
def models(small_repository):
    return Releases(small_repository, ReleaseRules(), lambda model: None).models


@pytest.mark.parametrize("path", PATHS)
def test_paths_of_the_table(path, models):
    matcher = EndpointMatcher(models)
    for _ in range(3):
        target = matcher.match(path)
        assert (target.endpoint.name, target.path) == PATHS[path]


@pytest.mark.parametrize(
    "path", ["", "/", "/v1/topk/", "/v1/models", "/v2/models/infer", "/v2/models//infer", "/v2/models/a/b/infer"]
)
def test_paths_of_others(path, models):
    assert EndpointMatcher(models).match(path) is None


def test_paths_that_clients_invent_are_not_cached(models):
    matcher = EndpointMatcher(models)
    known_paths = ("/v1/topk", "/v2/models/lm/infer", "/v2/models/lm/versions/1/infer")
    for path in known_paths:
        matcher.match(path)
    for index in range(3 * PATH_CACHE_ENTRIES):
        assert matcher.match(f"/v2/models/{index}/infer").path == {"name": str(index)}
        assert matcher.match(f"/v2/models/{'x' * 2000}{index}/infer") is not None
        assert matcher.match(f"/v2/models/lm/versions/{index + 2}/infer").path["version"] == str(index + 2)
    assert matcher.match("/v2/models/lm/versions/one/infer") is not None
    assert len(matcher.targets) == len(known_paths)
    assert all(matcher.targets.get(path) is not None for path in known_paths)


def test_every_endpoint_is_documented_with_its_parameters(small_repository):
    document = create_app(Settings(repository=small_repository)).openapi()
    for path, endpoint in ENDPOINTS.items():
        operation = document["paths"][path]["post"]
        assert operation["summary"].lower() == endpoint.name
        assert endpoint.name in ENDPOINT_NAMES
        assert [each["name"] for each in operation.get("parameters", [])] == [
            name for name in ("name", "version") if f"{{{name}}}" in path
        ]
        assert {"requestBody", "responses"} <= operation.keys()
