"""What /openapi.json says of responses is what they hold, no more and no less."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter
from shortlist.server.routes import schemas

from tests.support.layers import RunningServer, copy_writable

pytestmark = pytest.mark.slow

SET, LISTS = "/v1/models/lm/sets/low", "/v1/lists/mine"
ANSWERS = [  # verb, path, body, what the document says of the answer; in this order
    ("GET", "/healthz", None, schemas.Health),
    ("GET", "/readyz", None, schemas.Health),
    ("GET", "/v2/health/live", None, schemas.Health),
    ("GET", "/v2/health/ready", None, schemas.Health),
    ("GET", "/v2", None, schemas.ServerInfo),
    ("GET", "/v2/models", None, schemas.ModelNames),
    ("GET", "/v2/models/lm", None, schemas.ModelMetadata),
    ("GET", "/v2/models/lm/versions/1", None, schemas.ModelMetadata),
    ("GET", "/v2/models/lm/ready", None, schemas.ModelReady),
    ("GET", "/v2/models/lm/versions/1/ready", None, schemas.ModelReady),
    ("POST", "/v2/repository/index", {}, list[schemas.IndexEntry]),
    ("PUT", LISTS, {"lists": [[1, 2], [3]]}, schemas.StoredLists),
    ("GET", "/v1/lists", None, schemas.ListTables),
    ("DELETE", LISTS, None, schemas.Forgotten),
    ("PUT", SET, {"ids": [1, 2]}, schemas.SetInfo),
    ("GET", "/v1/models/lm/sets", None, schemas.SetList),
    ("GET", SET, None, schemas.SetContent),
    ("DELETE", SET, None, schemas.Forgotten),
]
PARAMETERS = {"/lm": "/{name}", "/versions/1": "/versions/{version}", "/low": "/{key}", "/mine": "/{name}"}
UNDESCRIBED = ("config", "logging", "setting", "status", "stats")  # whose answers other programs have given their form


@pytest.fixture(scope="module")
def http(small_repository, tmp_path_factory):
    """Of a server whose sets may change."""
    with RunningServer(copy_writable(small_repository, tmp_path_factory.mktemp("sets") / "repository")) as server:
        yield server.http


@pytest.fixture(scope="module")
def document(http):
    return http.get("/openapi.json").json()


def name_reference(kind):
    """What the document has in the place of a kind of answer."""
    is_list = not isinstance(kind, type) or not hasattr(kind, "model_fields")
    reference = {"$ref": f"#/components/schemas/{(kind.__args__[0] if is_list else kind).__name__}"}
    return {"type": "array", "items": reference} if is_list else reference


def find_schema(document, verb, path):
    for part, parameter in PARAMETERS.items():
        path = path.replace(part, parameter)
    content = document["paths"][path][verb.lower()]["responses"]["200"]["content"]
    return {key: value for key, value in content["application/json"]["schema"].items() if key != "title"}


def test_answers_are_as_the_document_says(http, document):
    for verb, path, body, kind in ANSWERS:
        answer = http.request(verb, path, json=body)
        assert answer.status_code == 200, answer.text
        adapter = TypeAdapter(kind)
        parsed = adapter.validate_python(answer.json())
        assert adapter.dump_python(parsed, exclude_unset=True) == answer.json(), path
        assert find_schema(document, verb, path) == name_reference(kind), path


def test_all_other_answers_in_json_are_described(document):
    undescribed = {
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if {} in [each["schema"] for each in operation["responses"]["200"].get("content", {}).values()]
    }
    assert undescribed
    assert {path for path in undescribed if not path.endswith(UNDESCRIBED)} == set()
