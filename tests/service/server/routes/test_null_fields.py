"""A field of /v1 that is null is as one that is left out, and the schemas say so of every optional one."""

from __future__ import annotations

import pytest
from shortlist.server.routes.catalogue.items import ItemChanges
from shortlist.server.routes.schemas import BeamRequest, ScoreRequest, TopKRequest
from shortlist.server.routes.schemas.v1_requests import NamedLists, Sample

from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=4, seed=6).contexts.tolist()
SHARED = {"model": "lm", "contexts": ROWS}
TOPK, SCORE = SHARED | {"k": 3}, SHARED | {"ids": [1, 2]}
BEAM = SHARED | {"scores": [0.0] * 4, "beam": 2}
BODIES = {
    "/v1/topk": (TopKRequest, TOPK),
    "/v1/score": (ScoreRequest, SCORE),
    "/v1/beam/step": (BeamRequest, BEAM),
}


def list_optional(kind, body):
    names = [name for name, field in kind.model_fields.items() if not field.is_required() and name not in body]
    assert names
    return names


def ask(small_server, path, body):
    answer = small_server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", BODIES)
def test_null_is_as_if_left_out(small_server, path):
    kind, body = BODIES[path]
    expected = ask(small_server, path, body)
    for name in list_optional(kind, body):
        kind.model_validate(body | {name: None})
        assert ask(small_server, path, body | {name: None}) == expected, name


def test_null_is_as_if_left_out_of_a_sample(small_server):
    body = {"seed": 3}
    expected = ask(small_server, "/v1/topk", SHARED | {"sample": body})
    for name in list_optional(Sample, body):
        Sample.model_validate(body | {name: None})
        assert ask(small_server, "/v1/topk", SHARED | {"sample": body | {name: None}}) == expected, name


@pytest.mark.parametrize(("kind", "body"), [(NamedLists, {"list": "mine"}), (ItemChanges, {})])
def test_schemas_permit_null_in_other_bodies(kind, body):
    for name in list_optional(kind, body):
        kind.model_validate(body | {name: None})


@pytest.mark.parametrize("path", BODIES)
def test_a_required_field_that_is_null_is_missing(small_server, path):
    kind, body = BODIES[path]
    for name in (name for name, field in kind.model_fields.items() if field.is_required()):
        answer = small_server.http.post(path, json=body | {name: None})
        assert (answer.status_code, answer.json()["error"]) == (400, f"the field '{name}' is missing from the body")
