"""The heads that may be asked: which there are, what their classes are called, and vectors to try them with."""

from __future__ import annotations

from functools import partial

from shortlist.bundle.reader import CALIBRATION_FILE
from shortlist.core.results import FloatArray, Labels, read_labels
from shortlist.errors import NotReady
from shortlist.head import Head
from shortlist.server.engine.service import Service
from shortlist.server.models import Model

from .answers import ReadTexts
from .body import Body
from .schemas import HeadCard, Overview


def list_heads(service: Service, body: Body | None) -> Overview:
    """Every head that is ready, and why some are not."""
    ready = [model for model in service.models if model.head_in_use is not None]
    return Overview(
        heads=[describe_head(model, model.head, body) for model in ready],
        body=None if body is None else body.name,
        waits=explain_wait(service),
    )


def describe_head(model: Model, head: Head, body: Body | None) -> HeadCard:
    """What the page says of a head."""
    manifest = head.manifest
    return HeadCard(
        name=model.name,
        version=model.version,
        method=manifest.method,
        classes=manifest.classes,
        dim=manifest.dim,
        max_k=manifest.max_k,
        promise=manifest.promise,
        reads=body is not None and body.has_head(head),
        dense=name_other_side(head),
    )


def name_other_side(head: Head) -> str | None:
    """What the head is held against; None where it was exported without."""
    if head.exact is None:
        return None
    return "its whole distribution" if head.is_own_reference else "the dense layer"


def explain_wait(service: Service) -> str | None:
    """Why the service is not ready; None where it is."""
    try:
        service.check_ready()
    except NotReady as error:
        return str(error)
    return None


def find_labels(head: Head, body: Body | None) -> Labels | None:
    """[V + 1] labels of a head, or of the body that goes before it; None where there are none."""
    if head.label_array is not None or body is None or not body.has_head(head):
        return head.label_array
    return body.labels


def find_texts(head: Head, body: Body | None) -> ReadTexts | None:
    """What reads the labels of ids, or the names of a head that has those alone; None where there are neither."""
    labels = find_labels(head, body)
    if labels is not None:
        return partial(read_labels, labels)
    return None if head.names is None else head.names.read


def take_vectors(model: Model, row: int, rows: int) -> FloatArray:
    """Context vectors [rows, d] that the export of a head held out, from one that `row` counts round to."""
    if model.bundle is None:
        raise NotReady(f"{model} is not ready: {model.reason}")
    contexts: FloatArray = model.bundle.tensors(CALIBRATION_FILE)["contexts"]
    return contexts[[(row + place) % len(contexts) for place in range(rows)]]
