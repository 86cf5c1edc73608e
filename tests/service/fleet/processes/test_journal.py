"""What a process that comes later has to be told."""

from __future__ import annotations

import pytest
from shortlist.fleet.processes.exchange import Request, Response
from shortlist.fleet.processes.journal import Journal

DONE = Response(200, [], b'{"all": "settings"}')


def make_request(method, path, body=b""):
    return Request(method, path, b"", [(b"content-length", b"%d" % len(body)), (b"accept", b"*/*")], body, ("", 0))


def note_all(*requests):
    journal = Journal()
    for request in requests:
        journal.note(make_request(*request), DONE)
    return [(request.method, request.path) for request in journal.list_requests()]


def test_the_last_change_of_each_thing_stays():
    unload, other = ("POST", "/v2/repository/models/lm/unload"), ("POST", "/v2/repository/models/mt/unload")
    assert note_all(unload, other, unload) == [other, unload]


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (("POST", "/v2/repository/models/lm/unload"), ("POST", "/v2/repository/models/lm/load")),
        (("PUT", "/v1/lists/some"), ("DELETE", "/v1/lists/some")),
        (
            ("POST", "/v2/systemsharedmemory/region/a/register"),
            ("POST", "/v2/systemsharedmemory/region/a/unregister"),
        ),
        (("POST", "/v2/systemsharedmemory/region/a/register"), ("POST", "/v2/systemsharedmemory/unregister")),
    ],
)
def test_what_was_undone_is_forgotten(change, undo):
    assert note_all(change, undo) == []


def test_settings_are_repeated_as_they_were_answered():
    journal = Journal()
    journal.note(make_request("POST", "/v2/logging", b'{"log_info": false}'), DONE)
    (request,) = journal.list_requests()
    assert request.body == DONE.body
    assert request.headers == [(b"accept", b"*/*")]


def test_traces_of_models_are_apart():
    paths = [("POST", path) for path in ("/v2/trace/setting", "/v2/models/lm/trace/setting")]
    assert note_all(*paths) == paths


def test_bodies_are_kept_small_and_keys_are_not_kept():
    journal = Journal()
    request = make_request("PUT", "/v1/lists/some", b'{"lists": [[1]]' + b" " * (1 << 20) + b"}")
    journal.note(request._replace(headers=[*request.headers, (b"authorization", b"Bearer secret")]), DONE)
    assert sum(len(kept.body) for kept in journal.requests.values()) < 1 << 16
    assert journal.list_requests() == [request]


def test_lists_that_the_processes_forgot_are_forgotten():
    journal = Journal()
    for path in ("/v1/lists/old", "/v1/lists/new", "/v2/systemsharedmemory/region/a/register"):
        journal.note(make_request("PUT", path), DONE)
    journal.keep_lists({"new"})
    assert [request.path for request in journal.list_requests()] == [
        "/v1/lists/new",
        "/v2/systemsharedmemory/region/a/register",
    ]


@pytest.mark.parametrize("name", ["load", "unload", "register", "unregister", "logging", "setting"])
def test_lists_may_be_called_as_what_is_done_to_models(name):
    journal = Journal()
    for path in ("/v1/lists/some", f"/v1/lists/{name}"):
        journal.note(make_request("PUT", path, b"ids"), DONE)
    assert [(each.path, each.body) for each in journal.list_requests()] == [
        ("/v1/lists/some", b"ids"),
        (f"/v1/lists/{name}", b"ids"),
    ]
    journal.note(make_request("DELETE", f"/v1/lists/{name}"), DONE)
    assert [each.path for each in journal.list_requests()] == ["/v1/lists/some"]
