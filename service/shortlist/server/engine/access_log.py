"""The access log: a line for every request that is over. It holds neither context vectors nor keys."""

from __future__ import annotations

import logging
from typing import Any

from starlette.types import Scope

from shortlist.core.checks import cut
from shortlist.server.messages.request_ids import RequestIds, read_request_ids

from .request import RequestState

NOTHING = "-"  # stands for what a request has not
MAX_PATH_CHARS = 200
log = logging.getLogger("shortlist.access")


def log_request(state: RequestState, status: int, end: float) -> None:
    """Write the line of a request to an endpoint that computes, which was over at `end`, by `time.perf_counter`."""
    model, computation = state.recorder.model, state.computation
    phases = {"decode_ms": state.decode_seconds}
    if computation is not None:
        phases |= {"queue_ms": computation.queue_seconds, "compute_ms": computation.seconds}
    place = NOTHING if model is None else f"{model.name}/{model.version}"
    details = {name: round(seconds * 1e3, 3) for name, seconds in phases.items()}
    write_line(state.client, f"{state.endpoint_name} {place}", status, end - state.start, state.ids, details)


def log_route(client: str, scope: Scope, status: int, seconds: float) -> None:
    """Write the line of a request of any other route, which took so many seconds."""
    what = f"{scope['method']} {cut(scope['path'], MAX_PATH_CHARS)}"
    write_line(client, what, status, seconds, read_request_ids(dict(scope["headers"])), {})


def write_line(client: str, what: str, status: int, seconds: float, ids: RequestIds, details: dict[str, float]) -> None:
    """Write one line; as JSON its parts are fields of their own. seconds: that the request took."""
    fields: dict[str, Any] = {
        "client": client,
        "request": what,
        "status": status,
        "ms": round(seconds * 1e3, 3),
        **details,
        "request_id": ids.request or NOTHING,
        "trace_id": ids.trace or NOTHING,
    }
    text = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("client", "request", "status"))
    log.info("%s %s %d %s", client, what, status, text, extra=fields)
