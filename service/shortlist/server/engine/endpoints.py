"""The endpoints that compute: a table of their paths, and the decoding of their requests into checked tasks.

The gateway and the fast path match requests against `ENDPOINTS`; FastAPI's routes document it and hand on to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from starlette.routing import compile_path

from shortlist.bundle.manifest import Manifest
from shortlist.core.queries import BeamQuery, BeamStep
from shortlist.decoding.step import continue_beams
from shortlist.errors import BadInput, NotFound
from shortlist.server.codecs import v1_json
from shortlist.server.codecs.v2_response import encode_and_compress
from shortlist.server.codecs.v2_template import InferTemplate
from shortlist.server.lifecycle.registry import Models, parse_version
from shortlist.server.messages.bounded_cache import BoundedCache
from shortlist.server.messages.headers import ACCEPT_ENCODING, JSON_LENGTH, EncodedResponse
from shortlist.server.messages.json_fields import read_flag
from shortlist.server.scheduling.tasks import BeamResult

from .request import DecodedRequest, RequestState
from .served_model import ServedModel
from .service import Service

PATH_CACHE_ENTRIES = 1024
MAX_CACHED_PATH_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that computes.

    decode: reads a body, raises ShortlistError. It sets the request's model as soon as that is known. It may run in a
    thread. splits: whether the JSON may end before the body does, where a header says so.
    """

    name: str
    decode: Callable[[Service, RequestState, bytes], DecodedRequest]
    splits: bool = False


class Target(NamedTuple):
    """What a request's path names: an endpoint, and the parameters of its path."""

    endpoint: Endpoint
    path: Mapping[str, str]


def find_model(service: Service, state: RequestState, body: bytes, name: str, version: int | None) -> ServedModel:
    """The model that a request asks, from now on the one that it is counted for; raises NotFound, BadInput."""
    served_model = service.find_model(name, version, body)
    state.recorder = served_model.recorder
    return served_model


def read_v1(
    service: Service, state: RequestState, body: bytes, names: tuple[str, ...]
) -> tuple[ServedModel, Manifest, dict[str, Any]]:
    """The model that a JSON request asks, its manifest, and the fields, among `names`, with ids in place of names."""
    fields = v1_json.parse_fields(body, names)
    served_model = find_model(service, state, body, *v1_json.read_target(fields))
    head = served_model.model.head
    return served_model, head.manifest, v1_json.resolve_fields(fields, head.names, head.manifest.name)


def decode_topk(service: Service, state: RequestState, body: bytes) -> DecodedRequest:
    """Decode and check a request to /v1/topk."""
    served_model, manifest, fields = read_v1(service, state, body, v1_json.TOPK_FIELDS)
    texts = {name: served_model.require_texts(name) for name in ("labels", "names") if read_flag(fields, name)}
    read_query = v1_json.read_sample_query if "sample" in fields else v1_json.read_topk_query
    query = read_query(fields, manifest.dim, service.named_lists)
    limits = v1_json.read_limits(fields)
    encode = partial(v1_json.encode_topk, manifest, texts, v1_json.read_more(fields))
    return DecodedRequest(served_model, served_model.make_task(query), encode, *limits)


def decode_score(service: Service, state: RequestState, body: bytes) -> DecodedRequest:
    """Decode and check a request to /v1/score."""
    served_model, manifest, fields = read_v1(service, state, body, v1_json.SCORE_FIELDS)
    query = v1_json.read_score_query(fields, manifest.dim)
    limits = v1_json.read_limits(fields)
    return DecodedRequest(
        served_model, served_model.make_task(query), partial(v1_json.encode_scores, manifest), *limits
    )


def decode_beam_step(service: Service, state: RequestState, body: bytes) -> DecodedRequest:
    """Decode and check a request to /v1/beam/step."""
    served_model, manifest, fields = read_v1(service, state, body, v1_json.BEAM_FIELDS)
    query = v1_json.read_beam_query(fields, manifest.dim, service.named_lists)
    limits = v1_json.read_limits(fields)
    encode = partial(encode_beams, partial(v1_json.encode_beam_step, manifest))
    return DecodedRequest(served_model, served_model.make_task(query), encode, *limits)


def encode_beams(encode: Callable[[BeamStep], EncodedResponse], result: BeamResult) -> EncodedResponse:
    """The response to a beam step, of what the head found; raises BadInput. It may run in a thread."""
    return encode(continue_beams(result.step, result.rows))


def check_wait(service: Service, state: RequestState, served_model: ServedModel, template: InferTemplate) -> None:
    """Raise Overloaded where a request of `template` would wait too long, TimedOut where its time is over."""
    end = state.start + (template.timeout or service.settings.request_timeout)
    served_model.admission.check_rows(template.layout.shape[0], end - time.perf_counter(), state.client)


def decode_infer(service: Service, state: RequestState, body: bytes) -> DecodedRequest:
    """Decode and check an infer request; one whose JSON was seen before by its template alone."""
    name, version = state.path["name"], state.path.get("version")
    number = None if version is None else parse_version(version, name)
    served_model = find_model(service, state, body, name, number)
    codec, header, accept = served_model.codec, state.headers.get(JSON_LENGTH), state.headers.get(ACCEPT_ENCODING)
    template = codec.find_template(body, header)
    if template is not None:
        if served_model.admission.row_shares.held:  # before its numbers are read, which may wait for other threads
            check_wait(service, state, served_model, template)
        encode = template.encode if accept is None else partial(encode_and_compress, template.encode, accept)
        contexts = template.layout.read(body)
        return DecodedRequest(
            served_model, template.task.with_contexts(contexts), encode, template.timeout, template.priority
        )
    request = codec.decode(body, None if header is None else header.decode("latin-1"))
    task = served_model.make_task(request.query)
    codec.add_template(request, task)
    write: Callable[[Any], EncodedResponse] = partial(codec.encode, request)
    if isinstance(request.query, BeamQuery):
        write = partial(encode_beams, write)
    if accept is not None:
        write = partial(encode_and_compress, write, accept)
    return DecodedRequest(served_model, task, write, request.timeout, request.priority)


ENDPOINTS: dict[str, Endpoint] = {
    "/v1/topk": Endpoint("topk", decode_topk),
    "/v1/score": Endpoint("score", decode_score),
    "/v1/beam/step": Endpoint("beam", decode_beam_step),
    "/v2/models/{name}/infer": Endpoint("infer", decode_infer, splits=True),
    "/v2/models/{name}/versions/{version}/infer": Endpoint("infer", decode_infer, splits=True),
}

ENDPOINT_NAMES = tuple(dict.fromkeys(endpoint.name for endpoint in ENDPOINTS.values()))  # for the metrics


class EndpointMatcher:
    """Finds the endpoint of a path in `ENDPOINTS`; caches the result, unless it names a model that `models` lacks."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.patterns = [(compile_path(template)[0], endpoint) for template, endpoint in ENDPOINTS.items()]
        self.targets: BoundedCache[str, Target] = BoundedCache(PATH_CACHE_ENTRIES)

    def match(self, path: str) -> Target | None:
        """The endpoint of a percent-decoded path; None where the table has no such path."""
        target = self.targets.get(path)
        if target is None:
            target = self.search(path)
            if target is not None and len(path) <= MAX_CACHED_PATH_CHARS and self.names_known_model(target.path):
                self.targets.put(path, target)
        return target

    def find_known(self, path: str) -> Target | None:
        """As `match`, of a path that is worth remembering; None for all others."""
        self.match(path)
        return self.targets.get(path)

    def names_known_model(self, path: Mapping[str, str]) -> bool:
        """Whether the parameters of a path name a model that is known, or none."""
        name = path.get("name")
        try:
            return name is None or self.models.find(name, parse_version(path.get("version"), name)) is not None
        except (NotFound, BadInput):
            return False

    def search(self, path: str) -> Target | None:
        """As `match`, by the table's patterns, past the cache."""
        for pattern, endpoint in self.patterns:
            match = pattern.match(path)
            if match is not None:
                return Target(endpoint, match.groupdict())
        return None
