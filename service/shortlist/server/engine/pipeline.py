"""A request's way through the server: decode, admit, compute, encode; timed, counted, and its errors handled.

`respond` is the asynchronous way of every request; `respond_inline` is that of a small one which can be computed at
once, without a task, a queue or a thread. Both run in the event loop; large bodies are coded in threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from shortlist.server.access.clients import read_address
from shortlist.server.access.keys import Role
from shortlist.server.messages.headers import RawHeaders, make_length_header
from shortlist.server.messages.responses import Response, make_drain_error, make_error_response
from shortlist.server.metrics.notes import OK_STATUS
from shortlist.server.scheduling.batcher import Batcher, Computation
from shortlist.server.scheduling.fair_queue import QueuedTask
from shortlist.server.scheduling.hold import Hold

from .body_reading import MAX_INLINE_BYTES, open_body, run_decoder
from .endpoints import Target
from .request import DecodedRequest, RequestState
from .service import Service

CLIENT_CLOSED_REQUEST = 499  # nobody reads this response; the code is for the metrics
RESULT_COPIES = 2  # of a result that are in memory while it is encoded: its arrays, and its text


async def respond(service: Service, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the response to one request, whatever happens."""
    headers = dict(scope["headers"])
    client = service.identify_client(headers, read_address(scope))
    state = RequestState(target.endpoint.name, target.path, headers, service.unknown_model, client)
    with Hold(service.admission, client) as hold:
        try:
            service.access.check_role(headers, Role.ASK)
            body = service.bodies.read(receive, headers, state.start, hold)
            response = await make_response(service, target, state, hold, await body, receive)
        except (Exception, asyncio.CancelledError) as error:
            state.read_seconds = state.read_seconds or time.perf_counter() - state.start  # its body never was whole
            response = make_failure_response(error, state)
        state.recorder.note_request(state, response.status)
        if service.reports.are_wanted:
            service.reports.tell(state, response.status)
        state.task = state.computation = None  # what is still needed of their arrays is in the response
        hold.keep_response(len(response.content))
        headers_out = [*response.headers, (b"connection", b"close")] if service.closing else response.headers
        await send({"type": "http.response.start", "status": response.status, "headers": headers_out})
        await send({"type": "http.response.body", "body": response.content})


async def make_response(
    service: Service, target: Target, state: RequestState, hold: Hold, body: bytes, receive: Receive
) -> Response:
    """Decode, admit, compute, encode; raises what the request fails by."""
    request = await decode_body(service, target, state, hold, body)
    served_model, task = request.served_model, request.task
    del body  # arrays that need it keep it
    if task.rows == 0 or served_model.batcher.fits_inline(task):
        served_model.admission.pass_rows(task.rows, state.deadline - time.perf_counter(), state.client)
        state.computation = served_model.batcher.compute_inline(task)
    else:
        hold.take_bytes(RESULT_COPIES * task.result_bytes)  # before its own rows fill the queue
        hold.take_rows(served_model.admission, task.rows, state.deadline - time.perf_counter())
        state.computation = await compute_in_batch(request, state, receive)
    result = state.computation.result
    served_model.offer_rows(task, result)
    in_loop = task.result_bytes <= MAX_INLINE_BYTES
    return Response(
        OK_STATUS, *(request.encode(result) if in_loop else await asyncio.to_thread(request.encode, result))
    )


def respond_inline(
    service: Service,
    target: Target,
    headers: RawHeaders,
    client: str,
    body: bytes,
    passing_headers: Callable[[], RawHeaders] = dict,
) -> Response | None:
    """The response to a small request that arrived whole; None, with nothing done or counted, where it has to wait.

    client: the name of who asks, which the caller has found to be permitted. passing_headers: gives those that are not
    among `headers` because they differ in every request. The response equals that of `respond`.
    Since nothing waits, rows and bytes are checked against the limits, not held.
    """
    state = RequestState(target.endpoint.name, target.path, headers, service.unknown_model, client)
    state.passing_headers = passing_headers
    try:
        response = make_response_inline(service, target, state, body)
        if response is None:
            return None
    except Exception as error:
        response = make_failure_response(error, state)
    state.recorder.note_request(state, response.status)
    if service.reports.are_wanted:
        service.reports.tell(state, response.status)
    return response


def make_response_inline(service: Service, target: Target, state: RequestState, body: bytes) -> Response | None:
    """Decode, admit, compute, encode, as `make_response`.

    None where the task has to wait or its result is large, and is not refused.
    """
    service.admission.check_bytes(len(body), 0, state.client)
    request = decode(service, target, state, body, state.start)
    served_model, task = request.served_model, request.task
    seconds = state.deadline - time.perf_counter()
    if not served_model.batcher.fits_inline(task) or task.result_bytes > MAX_INLINE_BYTES:
        served_model.admission.check_rows(task.rows, seconds, state.client)  # a refusal has nothing to wait for
        return None
    served_model.admission.pass_rows(task.rows, seconds, state.client)
    state.computation = served_model.batcher.compute_inline(task)
    served_model.offer_rows(task, state.computation.result)
    return Response(OK_STATUS, *request.encode(state.computation.result))


def make_failure_response(error: BaseException, state: RequestState) -> Response:
    """The response to a request that failed with `error`; empty where the client has left."""
    if isinstance(error, ClientDisconnect):
        return Response(CLIENT_CLOSED_REQUEST, b"", [make_length_header(b"")])
    return make_error_response(error if isinstance(error, Exception) else make_drain_error(), state.ids)


def decode(service: Service, target: Target, state: RequestState, body: bytes, start: float) -> DecodedRequest:
    """The checked request of a body, whose decoding began at `start`, and its deadline; raises ShortlistError."""
    request = target.endpoint.decode(service, state, body)
    state.deadline = state.start + (request.timeout or service.settings.request_timeout)
    state.task, state.decode_end = request.task, time.perf_counter()
    state.decode_seconds = state.decode_end - start
    return request


async def decode_body(
    service: Service, target: Target, state: RequestState, hold: Hold, content: bytes
) -> DecodedRequest:
    """As `decode`, of a body that may be compressed, and large."""
    start = time.perf_counter()
    state.read_seconds = start - state.start
    body = await open_body(service, content, state.headers, hold, splits=target.endpoint.splits)
    request = await run_decoder(service, body, hold, partial(decode, service, target, state, body.content, start))
    hold.resize_bytes(max(hold.bytes, request.task.argument_bytes))
    return request


async def compute_in_batch(request: DecodedRequest, state: RequestState, receive: Receive) -> Computation:
    """The result, from batches that the task shares with others; raises TimedOut after the deadline."""
    batcher, submission = request.served_model.batcher, time.perf_counter()
    entry = batcher.submit(request.task, state.client, request.priority)
    loop = asyncio.get_running_loop()
    timer = loop.call_later(max(0.0, state.deadline - time.perf_counter()), batcher.expire, entry)
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
