"""What each route wants, with and without keys, on a loopback address and elsewhere."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from shortlist.errors import BadInput
from shortlist.server.access.keys import Role
from shortlist.server.app import create_app
from shortlist.server.settings import Settings

from tests.support.servers.responses import read_refusal

SECRETS = {role: f"{role}-{'s' * 16}" for role in Role}
KEYS = "; ".join(f"{role} {role} {secret}" for role, secret in SECRETS.items())
OPEN_PATHS = {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/docs"}
CHANGES = [
    ("POST", "/v2/repository/models/lm/load"),
    ("POST", "/v2/repository/models/lm/unload"),
    ("POST", "/v2/logging"),
    ("POST", "/v2/trace/setting"),
    ("POST", "/v2/models/lm/trace/setting"),
]
LOOKS = [
    ("GET", "/metrics"),
    ("POST", "/v2/repository/index"),
    ("GET", "/v2/logging"),
    ("GET", "/v2/trace/setting"),
    ("GET", "/v2/models/stats"),
    ("GET", "/v2/models/lm/stats"),
]
READS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/lm"),
    ("GET", "/v2"),
    ("GET", "/v2/models"),
    ("GET", "/v2/models/lm"),
]
QUESTIONS = [("POST", "/v1/topk"), ("POST", "/v1/score"), ("POST", "/v2/models/lm/infer")]


def client_of(repository, **settings):
    return TestClient(create_app(Settings(repository=repository, **settings)), raise_server_exceptions=False)


def as_role(role):
    return {"Authorization": f"Bearer {SECRETS[role]}"}


@pytest.fixture
def client(small_repository):
    """A server with a key for each role, which loads nothing."""
    return client_of(small_repository, api_keys=KEYS, model_control="explicit")


def list_routes(app):
    """(method, path) of every route that is documented, and of those that are not."""
    for template, operations in app.openapi()["paths"].items():
        path = template.replace("{name}", "lm").replace("{version}", "1").replace("{region}", "in")
        yield from ((method.upper(), path) for method in operations)
    yield from [("HEAD", "/metrics"), ("GET", "/v2/"), ("GET", "/v2/cudasharedmemory/status"), ("GET", "/docs")]


def test_every_route_wants_a_key_but_those_that_are_open(client):
    answers = {(method, path): client.request(method, path).status_code for method, path in list_routes(client.app)}
    assert len(answers) > 30
    assert {path for (_, path), status in answers.items() if status != 401} == OPEN_PATHS


@pytest.mark.parametrize(("method", "path"), CHANGES + LOOKS + READS + QUESTIONS)
def test_nothing_is_done_without_a_key(client, method, path):
    for headers in (
        {},
        {"Authorization": "Bearer unknown-unknown-unknown"},
        {"Authorization": f"Basic {SECRETS['ask']}"},
    ):
        response = client.request(method, path, headers=headers)
        assert "API key" in read_refusal(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    ("requests", "roles"),
    [
        (CHANGES, {"administer"}),
        (LOOKS, {"observe"}),
        (READS, {"ask", "observe"}),
        (QUESTIONS, {"ask"}),
    ],
    ids=["changes", "looks", "reads", "questions"],
)
def test_a_key_opens_what_its_role_is_for(client, role, requests, roles):
    for method, path in requests:
        status = client.request(method, path, headers=as_role(role)).status_code
        assert (status == 403) == (role not in roles), f"{path} answers {status} to {role}"
        assert status != 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS | {"/openapi.json", "/docs/files/swagger-ui.css"}))
def test_health_and_documentation_want_no_key(client, path):
    assert client.get(path).status_code in (200, 503)


def test_the_reason_for_not_being_ready_is_for_those_who_may_read(client):
    for path in ("/readyz", "/v2/health/ready"):
        assert "lm" not in read_refusal(client.get(path), 503).replace("model", "")
        assert "it is still loading" in read_refusal(client.get(path, headers=as_role("observe")), 503)


def test_refusals_are_counted_by_reason(client):
    client.get("/v1/models")
    client.get("/metrics", headers=as_role("ask"))
    text = client.get("/metrics", headers=as_role("observe")).text
    assert 'shortlist_refusals_total{reason="key"} 1.0' in text
    assert 'shortlist_refusals_total{reason="role"} 1.0' in text
    assert 'shortlist_refusals_total{reason="host"} 0.0' in text


def test_the_openapi_document_says_that_keys_are_wanted(client, small_repository):
    document = client.get("/openapi.json").json()
    assert document["security"] == [{"key": []}]
    operations = [(path, each) for path, verbs in document["paths"].items() for each in verbs.values()]
    assert {path for path, operation in operations if operation.get("security") == []} == OPEN_PATHS - {"/docs"}
    assert "security" not in client_of(small_repository).get("/openapi.json").json()


@pytest.mark.parametrize(("method", "path"), CHANGES[2:])
def test_without_keys_a_server_is_administered_from_its_machine_alone(small_repository, method, path):
    assert client_of(small_repository).request(method, path).status_code == 200
    elsewhere = client_of(small_repository, host="0.0.0.0")
    assert "--api-keys-file" in read_refusal(elsewhere.request(method, path), 403)
    for other, place in LOOKS + READS[:1]:
        assert elsewhere.request(other, place).status_code == 200


def test_models_are_loaded_and_unloaded_only_where_that_is_switched_on(small_repository):
    client = client_of(small_repository)
    for method, path in CHANGES[:2]:
        assert "--model-control explicit" in read_refusal(client.request(method, path), 403)
    keyed = client_of(small_repository, api_keys=KEYS)
    assert "--model-control" in read_refusal(keyed.post(CHANGES[0][1], headers=as_role("administer")), 403)


def test_keys_that_cannot_be_read_stop_the_start(small_repository, tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        create_app(Settings(repository=small_repository, api_keys_file=tmp_path / "none"))


def test_no_secret_is_shown_by_the_settings(small_repository):
    assert SECRETS["ask"] not in repr(Settings(repository=small_repository, api_keys=KEYS))
