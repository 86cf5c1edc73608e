"""A request's way through the server: decode, admit, compute, encode; timed, counted, and its errors handled.

`respond` is the asynchronous way of every request; `respond_inline` is that of a small one which can be computed at
once, without a task, a queue or a thread. Both run in the event loop; large bodies are coded in threads.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from shortlist.server.access.keys import Role
from shortlist.server.messages.compression import decompress
from shortlist.server.messages.headers import CONTENT_ENCODING, RawHeaders, make_length_header
from shortlist.server.messages.responses import Response, make_error_response
from shortlist.server.metrics.notes import OK_STATUS
from shortlist.server.scheduling.admission import Hold
from shortlist.server.scheduling.batcher import Batcher, Computation
from shortlist.server.scheduling.fair_queue import QueuedTask

from .endpoints import Target
from .request import DecodedRequest, RequestState
from .service import Service

CLIENT_CLOSED_REQUEST = 499  # nobody reads this response; the code is for the metrics
MAX_INLINE_BYTES = 64 << 10  # larger bodies are coded in a thread


async def respond(service: Service, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the response to one request, whatever happens."""
    state = RequestState(target.endpoint.name, target.path, dict(scope["headers"]), service.unknown_model)
    with service.admission.hold() as hold:
        try:
            service.access.check_role(state.headers, Role.ASK)
            body = await service.bodies.read(receive, state.headers, state.start, hold)
            response = await make_response(service, target, state, hold, body, scope, receive)
        except Exception as error:
            response = make_failure_response(error)
        state.recorder.note_request(state, response.status)
        hold.keep_response(len(response.content))
        headers = [*response.headers, (b"connection", b"close")] if service.closing else response.headers
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})


async def make_response(
    service: Service, target: Target, state: RequestState, hold: Hold, body: bytes, scope: Scope, receive: Receive
) -> Response:
    """Decode, admit, compute, encode; raises what the request fails by."""
    request = await decode_body(service, target, state, hold, body)
    served_model, task = request.served_model, request.task
    hold.take_rows(served_model.admission, task.rows, state.deadline - time.perf_counter())
    if task.rows == 0 or served_model.batcher.fits_inline(task):
        state.computation = served_model.batcher.compute_inline(task)
    else:
        state.computation = await compute_in_batch(request, state.deadline, scope, receive)
    result = state.computation.result
    in_loop = task.result_bytes <= MAX_INLINE_BYTES
    return Response(
        OK_STATUS, *(request.encode(result) if in_loop else await asyncio.to_thread(request.encode, result))
    )


def respond_inline(service: Service, target: Target, headers: RawHeaders, body: bytes) -> Response | None:
    """The response to a small request that arrived whole; None, with nothing done or counted, where it has to wait.

    The caller has checked that the request may ask. The response equals that of `respond`. Since nothing waits, rows
    and bytes are checked against the limits, not held.
    """
    state = RequestState(target.endpoint.name, target.path, headers, service.unknown_model)
    try:
        response = make_response_inline(service, target, state, body)
        if response is None:
            return None
    except Exception as error:
        response = make_failure_response(error)
    state.recorder.note_request(state, response.status)
    return response


def make_response_inline(service: Service, target: Target, state: RequestState, body: bytes) -> Response | None:
    """Decode, admit, compute, encode, as `make_response`; None where the task has to wait or its result is large."""
    service.admission.check_bytes(len(body))
    request = decode(service, target, state, body, state.start)
    served_model, task = request.served_model, request.task
    if not served_model.batcher.fits_inline(task) or task.result_bytes > MAX_INLINE_BYTES:
        return None
    served_model.admission.check_rows(task.rows, state.deadline - time.perf_counter())
    state.computation = served_model.batcher.compute_inline(task)
    return Response(OK_STATUS, *request.encode(state.computation.result))


def make_failure_response(error: Exception) -> Response:
    """The response to a request that failed with `error`; empty where the client has left."""
    if isinstance(error, ClientDisconnect):
        return Response(CLIENT_CLOSED_REQUEST, b"", [make_length_header(b"")])
    return make_error_response(error)


def decode(service: Service, target: Target, state: RequestState, body: bytes, start: float) -> DecodedRequest:
    """The checked request of a body, whose decoding began at `start`, and its deadline; raises ShortlistError."""
    request = target.endpoint.decode(service, state, body)
    state.deadline = state.start + (request.timeout or service.settings.request_timeout)
    state.decode_seconds = time.perf_counter() - start
    return request


async def decode_body(service: Service, target: Target, state: RequestState, hold: Hold, body: bytes) -> DecodedRequest:
    """As `decode`, of a body that may be compressed, and large."""
    start, encoding = time.perf_counter(), state.headers.get(CONTENT_ENCODING)
    if target.endpoint.compresses and encoding:
        body = await asyncio.to_thread(decompress, body, encoding.decode("latin-1"), service.settings.body_limit)
        hold.take_bytes(len(body))
    if len(body) <= MAX_INLINE_BYTES:
        return decode(service, target, state, body, start)
    return await asyncio.to_thread(decode, service, target, state, body, start)


async def compute_in_batch(request: DecodedRequest, deadline: float, scope: Scope, receive: Receive) -> Computation:
    """The result, from batches that the task shares with others; raises TimedOut after the deadline."""
    batcher, submission = request.served_model.batcher, time.perf_counter()
    client = scope.get("client") or ("", 0)
    entry = batcher.submit(request.task, str(client[0]), request.priority)
    loop = asyncio.get_running_loop()
    timer = loop.call_later(max(0.0, deadline - time.perf_counter()), batcher.expire, entry)
    disconnect = asyncio.ensure_future(receive())  # after the body, all that can come is that the client leaves
    disconnect.add_done_callback(partial(drop_after_disconnect, batcher, entry))
    try:
        result = await entry.future
    except asyncio.CancelledError:  # the server stops
        batcher.drop(entry)
        raise
    finally:
        timer.cancel()
        disconnect.cancel()
    end = time.perf_counter()
    return Computation(result, end - entry.compute_start, entry.compute_start - submission, end)


def drop_after_disconnect(batcher: Batcher, entry: QueuedTask, disconnect: asyncio.Future[Any]) -> None:
    """Compute no more of a task whose client has left."""
    if not disconnect.cancelled():
        batcher.drop(entry, ClientDisconnect())
