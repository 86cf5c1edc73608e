"""OpenTelemetry spans of a real server, sent to a receiver that reads the protocol, beside its access log."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.proto", reason="extra otel is not installed")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.layers import RunningServer, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=100, seed=5).contexts.tolist()
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{PARENT}-{flag}" for flag in ("01", "00"))
PHASES = ["decode", "queue", "compute", "encode"]
SECONDS = 15.0  # until spans and lines are there
CLOCK_MS = 0.05  # that two readings of a clock lie apart


class Receiver(ThreadingHTTPServer):
    """An OTLP/HTTP receiver. spans: all that came. resources: the attributes of what sent them."""

    def __init__(self) -> None:
        self.spans: list = []
        self.resources: list[dict[str, object]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append(read_attributes(group.resource))
            self.server.spans += [span for scope in group.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is its own."""


def read_attributes(thing):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


@pytest.fixture(scope="module")
def receiver():
    with Receiver() as own:
        thread = threading.Thread(target=own.serve_forever)
        thread.start()
        yield own
        own.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server(small_repository, receiver):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    flags = ("--otel", "--access-log", "--log-format", "json", "--threads", "1")
    with RunningServer(small_repository, *flags, variables=variables) as own:
        yield own


def list_lines(server):
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    return [line for line in lines if line["name"] == "shortlist.access" and "/" not in line["request"].split()[0]]


def wait_for(things, what):
    end = time.monotonic() + SECONDS
    while not things():
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return things()


def ask(server, receiver, name, rows=1, status=200, **fields):
    """The spans of a request that is known by `name`, the whole first, and its line of the access log."""
    headers = {"X-Request-Id": name, "traceparent": SAMPLED}
    body = {"model": "lm", "contexts": ROWS[:rows], "k": 2} | fields
    assert server.http.post("/v1/topk", json=body, headers=headers).status_code == status

    def find_spans():
        whole = [span for span in receiver.spans if read_attributes(span).get("shortlist.request_id") == name]
        return whole and [*whole, *(span for span in receiver.spans if span.parent_span_id == whole[0].span_id)]

    (line,) = wait_for(lambda: [line for line in list_lines(server) if line["request_id"] == name], name)
    spans = wait_for(find_spans, name)
    return [spans[0], *sorted(spans[1:], key=lambda span: PHASES.index(span.name))], line


def count_ms(span):
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6


@pytest.mark.parametrize("rows", [1, 100])
def test_spans_of_requests_on_either_path(server, receiver, rows):
    """The first requests go uvicorn's way, later small ones the fast one, large ones through a thread."""
    for turn in range(8):
        (whole, *phases), line = ask(server, receiver, f"rows-{rows}-{turn}", rows)
        assert (whole.name, whole.trace_id.hex(), whole.parent_span_id.hex()) == ("topk", TRACE, PARENT)
        assert read_attributes(whole) == {
            "shortlist.model": "lm",
            "shortlist.version": 1,
            "shortlist.rows": rows,
            "shortlist.k": 2,
            "shortlist.request_id": f"rows-{rows}-{turn}",
            "http.response.status_code": 200,
        }
        assert [span.name for span in phases] == PHASES
        assert {span.trace_id for span in phases} == {whole.trace_id}
        for span in phases[:3]:
            assert count_ms(span) == pytest.approx(line[f"{span.name}_ms"], abs=CLOCK_MS)
        assert count_ms(whole) == pytest.approx(line["ms"], abs=CLOCK_MS)
        ends = [whole.start_time_unix_nano, *(span.end_time_unix_nano for span in phases)]
        assert ends == sorted(ends), "one after the other"
        assert ends[-1] <= whole.end_time_unix_nano
        assert abs(whole.end_time_unix_nano / 1e9 - time.time()) < SECONDS


def test_a_request_without_a_trace_begins_one(server, receiver):
    server.http.post("/v1/topk", json={"model": "lm", "contexts": ROWS[:7], "k": 3}, headers={"X-Request-Id": "alone"})
    (span,) = wait_for(
        lambda: [s for s in receiver.spans if read_attributes(s).get("shortlist.request_id") == "alone"], 0
    )
    assert span.parent_span_id == b""
    assert span.trace_id.hex() != TRACE


def test_errors(server, receiver):
    (whole, *phases), _ = ask(server, receiver, "wrong", status=400, k=0)
    assert (read_attributes(whole)["http.response.status_code"], phases) == (400, [])
    assert whole.status.code == 0, "the client's fault is no error of the server"
    (whole, *_), _ = ask(server, receiver, "unknown", status=404, model="nope")
    assert "shortlist.model" not in read_attributes(whole)


def test_what_is_not_sampled_is_not_sent(server, receiver):
    headers = {"X-Request-Id": "quiet", "traceparent": UNSAMPLED}
    server.http.post("/v1/topk", json={"model": "lm", "contexts": ROWS[:1], "k": 2}, headers=headers)
    ask(server, receiver, "after")
    assert not [span for span in receiver.spans if read_attributes(span).get("shortlist.request_id") == "quiet"]


def test_who_sends(server, receiver):
    ask(server, receiver, "who")
    assert receiver.resources[-1]["service.name"] == "shortlist"


def test_the_last_spans_are_sent_at_the_end(small_repository, receiver):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SERVICE_NAME": "decoder"}  # which sends every 5 s
    with RunningServer(small_repository, "--otel", "--threads", "1", "--drain-delay", "0", variables=variables) as own:
        own.http.post("/v1/topk", json={"model": "lm", "contexts": ROWS[:1], "k": 2}, headers={"X-Request-Id": "last"})
    assert [span for span in receiver.spans if read_attributes(span).get("shortlist.request_id") == "last"]
    assert receiver.resources[-1]["service.name"] == "decoder"
    assert own.process.returncode == 0


def test_a_server_whose_receiver_is_gone_answers_and_stops_in_time(small_repository):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with RunningServer(small_repository, "--otel", "--threads", "1", "--drain-delay", "0", variables=variables) as own:
        for _ in range(5):
            assert own.http.post("/v1/topk", json={"model": "lm", "contexts": ROWS[:1], "k": 2}).status_code == 200
        start = time.monotonic()
        own.process.terminate()
        assert own.process.wait(20) == 0
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("otel", [False, True])
def test_nothing_of_it_is_imported_unless_it_is_switched_on(small_repository, otel):
    code = (
        "import sys; from shortlist.server.app import create_app; from shortlist.server.settings import load_settings;"
        f"create_app(load_settings(repository={str(small_repository)!r}, otel={otel}));"
        "sys.exit('opentelemetry.sdk' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == otel
