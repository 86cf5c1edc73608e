"""/v1/models/{name}/recall: how precise a served model is on contexts that the request gives."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shortlist.core.arrays import Array, check_dimensions, parse_float_rows
from shortlist.core.queries import TopKQuery
from shortlist.errors import BadInput
from shortlist.evaluation.evaluator import Evaluation
from shortlist.evaluation.statistics import Share
from shortlist.server.codecs.v1_json import parse_fields, require_field
from shortlist.server.engine.body_reading import Body, read_body, run_decoder
from shortlist.server.engine.bundle_watch import copy_uncounted
from shortlist.server.engine.pipeline import CLIENT_CLOSED_REQUEST
from shortlist.server.lifecycle.registry import parse_version
from shortlist.server.messages.json_fields import parse_json
from shortlist.server.messages.responses import make_json_response
from shortlist.wire.open_inference import CONTEXT, parse_tensors

from . import schemas
from .dependencies import ASK, get_service, hold_request, read_headers

router = APIRouter(prefix="/v1/models", tags=["v1"], dependencies=[ASK], responses=schemas.FAILURE_RESPONSES)


class Recall(BaseModel):
    """How precise a model is on the distinct contexts given, by its plan alone; null where there is no truth."""

    model: str
    version: int
    rows: int
    precision: dict[int, Share] | None = Field(description="P@k by k, of requests for k classes")
    promised: dict[int, float] | None = Field(description="what the export measured")
    logprob_error: dict[str, float] | None = Field(description="|error| of log-probabilities, nats: mean, max, ...")
    missing: list[str] = Field(description="which figures cannot be had, and why")
    warning: str | None = Field(description="where precision is surely below what was promised")


@router.post(
    "/{name}/recall",
    responses={200: {"model": Recall}},
    openapi_extra=schemas.describe_body(schemas.RecallRequest, binary=True),
)
async def recall(request: Request, name: str, version: str | None = None) -> Response:
    """P@k of a model on given contexts, and how far its log-probabilities are off, as `shortlist evaluate` has them."""
    service, headers = get_service(request), read_headers(request)
    served_model = service.find_model(name, parse_version(version, name))
    with hold_request(request) as hold:
        body = await read_body(service, request.receive, headers, hold)
        head = copy_uncounted(served_model.model.head)
        contexts = await run_decoder(service, body, hold, partial(read_contexts, body, head.manifest.dim))
        served_model.size_limits.check(TopKQuery(contexts, 1))
        served_model.admission.pass_rows(len(contexts), service.settings.request_timeout, hold.client)
        with contextlib.suppress(ClientDisconnect):
            evaluation = await service.monitor.evaluate(head, contexts, request.receive)
            return make_json_response(describe_recall(evaluation))
        return Response(status_code=CLIENT_CLOSED_REQUEST)


def read_contexts(body: Body, dim: int) -> Array:
    """The context vectors [n, dim] of a body, JSON or a binary tensor; raises BadInput."""
    text, binary = body.split()
    if binary is None:
        return parse_float_rows("contexts", require_field(parse_fields(text, ("contexts",)), "contexts"), dim)
    tensors = parse_tensors(parse_json(text).get("inputs"), binary, "recall")
    if set(tensors) != {CONTEXT}:
        raise BadInput(f"the input of recall is '{CONTEXT}', [n, {dim}]: send it alone")
    check_dimensions("contexts", tensors[CONTEXT].shape)
    return tensors[CONTEXT].to_array("recall")


def describe_recall(evaluation: Evaluation) -> dict[str, Any]:
    """`Recall` of an evaluation."""
    figures = evaluation.model_dump(mode="json", include=set(Recall.model_fields))
    return {"model": evaluation.name, "version": evaluation.version} | figures
