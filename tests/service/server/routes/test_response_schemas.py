"""What /openapi.json says of responses is what they hold, no more and no less."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory

import pytest
from pydantic import TypeAdapter
from shortlist.server.routes import schemas

from tests.support.layers import DIM, RunningServer, copy_writable

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
    ("GET", "/v2/models/lm/config", None, schemas.ModelConfig),
    ("GET", "/v2/models/lm/versions/1/config", None, schemas.ModelConfig),
    ("GET", "/v2/models/stats", None, schemas.Statistics),
    ("GET", "/v2/models/lm/stats", None, schemas.Statistics),
    ("GET", "/v2/models/lm/versions/1/stats", None, schemas.Statistics),
    ("GET", "/v2/logging", None, schemas.LogState),
    ("POST", "/v2/logging", {}, schemas.LogState),
    ("GET", "/v2/trace/setting", None, schemas.TraceState),
    ("POST", "/v2/trace/setting", {}, schemas.TraceState),
    ("GET", "/v2/models/lm/trace/setting", None, schemas.TraceState),
    ("POST", "/v2/models/lm/trace/setting", {}, schemas.TraceState),
    ("GET", "/v2/systemsharedmemory/status", None, list[schemas.SharedRegion]),
    ("GET", "/v2/systemsharedmemory/region/in/status", None, list[schemas.SharedRegion]),
    ("POST", "/v2/repository/index", {}, list[schemas.IndexEntry]),
    ("PUT", LISTS, {"lists": [[1, 2], [3]]}, schemas.StoredLists),
    ("GET", "/v1/lists", None, schemas.ListTables),
    ("DELETE", LISTS, None, schemas.Forgotten),
    ("PUT", SET, {"ids": [1, 2]}, schemas.SetInfo),
    ("GET", "/v1/models/lm/sets", None, schemas.SetList),
    ("GET", SET, None, schemas.SetContent),
    ("DELETE", SET, None, schemas.Forgotten),
]
PARAMETERS = {
    "/lm": "/{name}",
    "/in/": "/{region}/",
    "/versions/1": "/versions/{version}",
    "/low": "/{key}",
    "/mine": "/{name}",
}
CONTEXT = {"name": "context", "datatype": "FP32", "shape": [1, DIM], "data": [0.5] * DIM}
INFER = "/v2/models/{name}/infer"


@contextmanager
def create_shared_memory(size):
    """A shared memory object that the server may use; its key."""
    block = SharedMemory(f"shortlist-schemas-{os.getpid()}", create=True, size=size)
    try:
        yield block.name
    finally:
        block.close()
        block.unlink()


@pytest.fixture(scope="module")
def http(small_repository, tmp_path_factory):
    """Of a server whose sets may change, and that knows a region of shared memory and has answered a request."""
    repository = copy_writable(small_repository, tmp_path_factory.mktemp("sets") / "repository")
    with RunningServer(repository, "--shared-memory") as server, create_shared_memory(64) as key:
        region = {"key": key, "byte_size": 64}
        assert server.http.post("/v2/systemsharedmemory/region/in/register", json=region).status_code == 200
        assert server.http.post("/v2/models/lm/infer", json={"inputs": [CONTEXT]}).status_code == 200
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


def list_operations(document):
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            yield f"{verb.upper()} {path}", operation


def test_every_answer_in_json_is_described(document):
    contents = {name: operation["responses"]["200"].get("content", {}) for name, operation in list_operations(document)}
    assert {name for name, content in contents.items() if {"schema": {}} in content.values()} == set()


def test_parts_of_a_path_are_texts_and_no_other_parameter_is_documented_but_the_version_of_v1(document):
    for name, operation in list_operations(document):
        parameters = {(each["in"], each["name"]): each for each in operation.get("parameters", [])}
        parts = {("path", part) for part in re.findall(r"{(\w+)}", name)}
        assert parts == {key for key in parameters if key[0] == "path"}, name
        assert {parameters[part]["schema"]["type"] for part in parts} <= {"string"}, name
        assert set(parameters) - parts <= ({("query", "version")} if "/v1/models" in name else set()), name


def test_a_version_in_the_query_of_a_route_of_v2_is_ignored_as_that_of_infer(http):
    assert http.get("/v2/models/lm/ready?version=7").status_code == 200
    assert http.get("/v2/trace/setting?name=none").status_code == 200
    assert http.post("/v2/models/lm/infer?version=7", json={"inputs": [CONTEXT]}).status_code == 200


def test_binary_answers_are_documented(http, document):
    body = {"inputs": [CONTEXT], "parameters": {"binary_data_output": True}}
    answer = http.post(INFER.format(name="lm"), json=body)
    documented = document["paths"][INFER]["post"]["responses"]["200"]
    assert set(documented["content"]) == {"application/json", answer.headers["content-type"]}
    assert set(documented["headers"]) == {"Inference-Header-Content-Length"} < set(map(str.title, answer.headers))


def test_binary_requests_are_documented(document):
    taken = {
        name
        for name, operation in list_operations(document)
        if "application/octet-stream" in operation.get("requestBody", {}).get("content", {})
    }
    versioned = "/v2/models/{name}/versions/{version}/infer"
    lists, sets = "PUT /v1/lists/{name}", "PUT /v1/models/{name}/sets/{key}"
    items, recall = "PUT /v1/models/{name}/items", "POST /v1/models/{name}/recall"
    assert taken == {f"POST {INFER}", f"POST {versioned}", lists, sets, items, recall}


def test_failures_are_documented_as_json_on_every_route(document):
    for name, operation in list_operations(document):
        assert set(operation["responses"]["default"]["content"]) == {"application/json"}, name
        assert set(operation["responses"]["default"]["headers"]) == {"Retry-After", "X-Request-Id"}, name
