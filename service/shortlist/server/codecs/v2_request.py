"""The Open Inference Protocol's infer request, server side: bytes -> arrays. `v2_response` encodes the response."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.core.checks import cut, is_count, parse_object, show
from shortlist.core.queries import Query, Result, TopKQuery
from shortlist.core.results import Labels, ReadTexts, read_labels
from shortlist.core.units import SECONDS_PER_MICROSECOND
from shortlist.errors import BadInput
from shortlist.server.messages.bounded_cache import BoundedCache
from shortlist.server.messages.headers import EncodedResponse
from shortlist.server.messages.json_fields import parse_json, read_flag
from shortlist.server.scheduling.slices import Task
from shortlist.server.scheduling.tasks import TopKTask
from shortlist.wire.open_inference import (
    CONTEXT,
    DATATYPES,
    LABELS,
    NAMES,
    RISK,
    SCORES,
    SharedRegions,
    Tensor,
    parse_tensors,
    split_body,
)
from shortlist.wire.texts import TEXT_DATATYPE

from .named_lists import ListRegistry
from .v2_query import DEFAULT_K, INPUT_DATATYPES, MATRICES, make_query, name_kind
from .v2_response import OUTPUT_DATATYPES, TEXTS, OutputFormat, encode_infer, read_outputs
from .v2_template import ContextLayout, InferTemplate

RESERVED_PREFIX = "triton_"
TEMPLATE_CACHE_ENTRIES = 256
MAX_TEMPLATE_BYTES = 1024  # of a request's JSON
MAX_LENGTH_DIGITS = 6  # of such a JSON's length, and then some


@dataclass(slots=True)
class InferRequest:
    """A decoded request. timeout: seconds, 0 for the server's own. priority: lower goes first.

    layout: where its context vectors are, if nothing else in the body may vary; None for all other requests.
    """

    id: str
    query: Query
    outputs: dict[str, OutputFormat]
    timeout: float = 0.0
    priority: int = 0
    layout: ContextLayout | None = None


class InferCodec:
    """Reads the infer requests to one model, and writes the responses.

    labels: [V + 1], for classification and the output of that name. memory: shared regions, where they are served.
    registry: the lists that requests may name. names: of classes, in place of ids.
    """

    def __init__(
        self,
        manifest: Manifest,
        labels: Labels | None = None,
        memory: SharedRegions | None = None,
        registry: ListRegistry | None = None,
        names: Names | None = None,
    ) -> None:
        self.manifest, self.memory, self.registry, self.names = manifest, memory, registry, names
        self.texts: dict[str, ReadTexts] = {}
        if labels is not None:
            self.texts[LABELS] = partial(read_labels, labels)
        if names is not None:
            self.texts[NAMES] = names.read
        self.templates: BoundedCache[bytes, InferTemplate] = BoundedCache(TEMPLATE_CACHE_ENTRIES)

    def find_template(self, body: bytes, header: bytes | None) -> InferTemplate | None:
        """The template of a body whose JSON was seen before; None for all others.

        header: value of Inference-Header-Content-Length.
        """
        if header is None or len(header) > MAX_LENGTH_DIGITS or not header.isdigit():
            return None
        length = int(header)
        template = self.templates.get(body[:length]) if length <= MAX_TEMPLATE_BYTES else None
        if template is None or template.layout.size != len(body) - length:
            return None
        return template

    def add_template(self, request: InferRequest, task: Task) -> None:
        """Remember a request whose task is checked, where only its context vectors may vary."""
        query = request.query
        if request.layout is None or not isinstance(task, TopKTask):
            return
        if not isinstance(query, TopKQuery) or has_lists(query):
            return
        empty = replace(task, contexts=np.empty((0, 0), np.float32))  # not to keep the body alive
        limits = request.timeout, request.priority
        template = InferTemplate(self.manifest, request.id, request.outputs, *limits, request.layout, empty)
        self.templates.put(request.layout.text, template)

    def decode(self, body: bytes, header: str | None) -> InferRequest:
        """One infer request; raises BadInput.

        header: value of Inference-Header-Content-Length; `0` makes the whole body one float32 context vector.
        """
        text, binary = split_body(body, header)
        if not text and header is not None:
            return self.decode_raw(binary)
        content = parse_json(text)
        inputs = parse_tensors(content.get("inputs"), binary, self.manifest.name, self.memory, INPUT_DATATYPES)
        parameters = parse_object(content, "parameters", "the request")
        check_parameters(parameters)
        outputs = read_outputs(content, read_flag(parameters, "binary_data_output"), name_kind(inputs))
        lacking = next((name for name in TEXTS if name in outputs and name not in self.texts), None)
        if lacking is not None:
            raise BadInput(f"{self.manifest.name} was exported without {lacking}: ask for ids alone")
        classified = max(output.classes for output in outputs.values())
        query = make_query(inputs, parameters, self.manifest, self.registry, self.names, classified)
        timeout, priority = (
            read_count(parameters, "timeout") * SECONDS_PER_MICROSECOND,
            read_count(parameters, "priority"),
        )
        layout = find_layout(text, inputs, outputs, len(binary))
        return InferRequest(read_id(content), query, outputs, timeout, priority, layout)

    def decode_raw(self, binary: memoryview) -> InferRequest:
        """The protocol's raw binary request: one context vector, no JSON; every output is binary."""
        tensor = Tensor(CONTEXT, "FP32", (1, self.manifest.dim), binary)
        query = TopKQuery(tensor.to_array(self.manifest.name), min(DEFAULT_K, self.manifest.max_k))
        return InferRequest("", query, dict.fromkeys(OUTPUT_DATATYPES["topk"], OutputFormat(binary=True)))

    def encode(self, request: InferRequest, result: Result) -> EncodedResponse:
        """The response's body and headers."""
        return encode_infer(self.manifest, request.id, request.outputs, self.texts, self.memory, result)


def has_lists(query: TopKQuery) -> bool:
    """Whether a request names sets or registered lists, empty ones too: what these hold may change."""
    return any(lists is not None for lists in (query.allow, query.ban, query.within, query.without))


def find_layout(
    text: memoryview, inputs: dict[str, Tensor], outputs: dict[str, OutputFormat], size: int
) -> ContextLayout | None:
    """The layout of a request with `size` bytes behind its `text`, if only its context vectors may vary, else None."""
    context = inputs.get(CONTEXT)
    if len(text) > MAX_TEMPLATE_BYTES or context is None or len(inputs) > 1 or context.shape == (0, 0):
        return None
    behind_text = context.raw is not None and len(context.raw) == size and context.datatype != "BF16"
    if not behind_text or not all(output.plain for output in outputs.values()):
        return None
    return ContextLayout(bytes(text), DATATYPES[context.datatype], context.shape, size)


def describe_model(manifest: Manifest, versions: list[int], texts: Collection[str]) -> dict[str, Any]:
    """The protocol's description of a model, with all inputs, which are optional but for `context`.

    The outputs are those of a top-k request; `risk`, `scores` and texts are sent where a request names them.
    texts: the outputs of texts that it has, `labels` and `names`.
    """
    inputs = [{"name": CONTEXT, "datatype": "FP32", "shape": [-1, manifest.dim]}]
    inputs += [
        {"name": name, "datatype": datatypes[0], "shape": [-1, -1] if name in MATRICES else [-1]}
        for name, datatypes in INPUT_DATATYPES.items()
        if name != CONTEXT
    ]
    outputs = [
        {"name": name, "datatype": datatype, "shape": [-1] if name == "scored" else [-1, -1]}
        for name, datatype in OUTPUT_DATATYPES["topk"].items()
    ]
    outputs.append({"name": RISK, "datatype": "FP32", "shape": [-1]})
    outputs.append({"name": SCORES, "datatype": "FP32", "shape": [-1, -1]})
    outputs += [{"name": name, "datatype": TEXT_DATATYPE, "shape": [-1, -1]} for name in texts]
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": "onnxruntime_onnx",
        "inputs": inputs,
        "outputs": outputs,
    }


def read_id(content: dict[str, Any]) -> str:
    """The request's id, or nothing; raises BadInput."""
    request_id = content.get("id", "")
    if not isinstance(request_id, str):
        raise BadInput("id must be text")
    return request_id


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse names that the protocol reserves; other names that are not ours are ignored."""
    reserved_name = next((name for name in parameters if name.startswith(RESERVED_PREFIX)), None)
    if reserved_name is not None:
        raise BadInput(f"parameter '{cut(reserved_name)}' has the reserved prefix {RESERVED_PREFIX}: leave it out")


def read_count(parameters: dict[str, Any], name: str) -> int:
    """A parameter that is a whole number from 0, 0 where it is missing; raises BadInput."""
    value: int = parameters.get(name, 0)
    if not is_count(value):
        raise BadInput(f"{name} is {show(value)}: send a whole number from 0")
    return value
