"""What a client or a proxy calls a request: its id, and the trace that it is part of."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from .headers import RawHeaders

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
# Characters that ids have, so that none forges a line of the log; longer ones are nobody's id.
ID_PATTERN = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# W3C Trace Context, 3.2: version, trace id, parent id, flags; later versions may add to the end.
TRACE_PATTERN = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


class RequestIds(NamedTuple):
    """request: of X-Request-Id, trace: of `traceparent`; empty where there is none, or it is none."""

    request: str = ""
    trace: str = ""

    def name_request(self) -> str:
        """What finds the request in logs: its id, else its trace, else a new id."""
        return self.request or self.trace or uuid.uuid4().hex[:12]


def read_request_ids(headers: RawHeaders) -> RequestIds:
    """The ids that headers, by names in lower case, give a request."""
    request, trace = headers.get(REQUEST_ID, b"").strip(), headers.get(TRACEPARENT, b"").strip()
    known, match = ID_PATTERN.fullmatch(request), TRACE_PATTERN.fullmatch(trace)
    return RequestIds(known[0].decode() if known else "", match[1].decode() if match else "")
