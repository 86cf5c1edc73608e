"""The straight way of a small question: from the bytes of one read to those of one write, without a task.

Equals asking through uvicorn's parser and cycle and `Gateway`, the answer's bytes, the metrics and the admission
included, but spares what they cost. Goes only where nothing is unusual: a head that they have parsed before, byte for
byte, with its whole body, on a connection that is idle between two requests, for work that is computed at once. All
else returns None, with nothing done yet, and goes their way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from shortlist.server.engine.request import Call, Endpoint
from shortlist.server.engine.service import CELL_BYTES, OK, SMALL, Service
from shortlist.server.messages.headers import Headers, RawHeaders
from shortlist.server.messages.responses import failed, with_length

END = b"\r\n\r\n"
HEADS = 1024  # of requests that are remembered
LONGEST = 2048  # bytes of a head worth remembering
SKIPPED = 16  # requests that are not tried after one that would have had to wait
UNUSUAL = frozenset((b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"connection"))


@dataclass(slots=True)
class Known:
    """A request's head that was parsed before. size: of the body, bytes. skip: requests not to be tried.

    text: the answer's head, made of the headers `defaults` and `sent`.
    """

    endpoint: Endpoint
    headers: RawHeaders
    size: int
    skip: int = 0
    defaults: Headers | None = None
    sent: Headers | None = None
    text: bytes = b""


class Straight:
    """The heads that are known, of all connections."""

    def __init__(self, service: Service) -> None:
        """None yet."""
        self.service = service
        self.heads: dict[bytes, Known] = {}

    def learn(self, data: bytes, endpoint: Endpoint, headers: Headers) -> None:
        """`data` was parsed as one question of HTTP/1.1 that keeps its connection, and nothing else."""
        end = data.find(END) + len(END)
        head, named = data[:end], dict(headers)
        size = len(data) - end
        if head in self.heads or end > LONGEST or size > SMALL or head.count(b"\n") != head.count(b"\r\n"):
            return
        if named.get(b"content-length") == str(size).encode() and UNUSUAL.isdisjoint(named):
            if len(self.heads) >= HEADS:
                self.heads.clear()
            self.heads[head] = Known(endpoint, named, size)

    def answer(self, data: bytes, defaults: Headers) -> bytes | None:
        """The answer to what an idle connection read, status line and all; None where it has to go the other way.

        defaults: headers that every answer begins with.
        """
        end = data.find(END) + len(END)
        known = self.heads.get(data[:end])
        if known is None or len(data) - end != known.size or self.service.closing:
            return None
        if known.skip:
            known.skip -= 1
            return None
        found = answer_at_once(self.service, known.endpoint, known.headers, data[end:])
        if found is None:
            known.skip = SKIPPED
            return None
        status, content, headers = found
        if headers is not known.sent or defaults is not known.defaults:  # a list is of one status
            known.defaults, known.sent = defaults, headers
            known.text = answer_head(status, [*defaults, *headers])
        return known.text + content


def answer_at_once(
    service: Service, endpoint: Endpoint, headers: RawHeaders, body: bytes
) -> tuple[int, bytes, Headers] | None:
    """Status, body and headers of the answer; None, and nothing is done or counted, where it would have to wait.

    Equals `Service.answer` of a small plain body that is there: what that holds while it waits, this only checks.
    """
    call = Call(service)
    try:
        service.admission.check(len(body))
        job, work = service.decoded(endpoint, call, headers, body)
        batcher = job.served.batcher
        if not batcher.at_once(work) or work.cells * CELL_BYTES > SMALL:
            return None
        call.check_rows(work.rows, service.limit_of(call, job))
        decoded = time.perf_counter()
        result = batcher.answer_now(work)
        computed = time.perf_counter()
        content, out = service.encoded(endpoint, headers, job, result)
        call.decode, call.compute = decoded - call.started, computed - decoded
        call.encode = time.perf_counter() - computed
        call.note(result)
        status = OK
    except Exception as error:
        status, content, out = failed(error)
    service.count(call, endpoint, status)
    return status, content, with_length(out, content)


def answer_head(status: int, headers: Headers) -> bytes:
    """An answer's head, as uvicorn sends it."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n"])
