"""What is read of a server as a whole: the answers of all its processes to one question, as one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from shortlist.evaluation.sequential import bound_share
from shortlist.fleet.processes.exchange import Response, replace_body

LARGEST = ("last_inference", "logprob_error_max", "evidence")  # of these fields the largest is the server's
SERVED_PRECISION = "served_precision"


def merge_readiness(responses: Sequence[Response]) -> Response:
    """Ready once all are; else what the first says that is not. The first response is of who was asked."""
    return next((response for response in responses if not response.is_success), responses[0])


def merge_statistics(responses: Sequence[Response]) -> Response:
    """Triton's statistics: counts and times add up, version by version."""
    entries: dict[tuple[str, str], list[Any]] = {}
    for content in read_all(responses):
        for entry in content["model_stats"]:
            entries.setdefault((entry["name"], entry["version"]), []).append(entry)
    return write_json(responses[0], {"model_stats": [add_up(each) for each in entries.values()]})


def add_up(values: Sequence[Any], name: str = "") -> Any:
    """The sum of numbers, and of those inside of objects; of entries of lists that have the same batch size."""
    first = values[0]
    if isinstance(first, dict):
        return {key: add_up([value[key] for value in values], key) for key in first}
    if isinstance(first, list):
        sizes = sorted({entry["batch_size"] for value in values for entry in value})
        batches = {
            size: [entry for value in values for entry in value if entry["batch_size"] == size] for size in sizes
        }
        return [add_up(entries) | {"batch_size": size} for size, entries in batches.items()]
    if isinstance(first, str):
        return first
    return max(values) if name in LARGEST else sum(values)


def merge_models(responses: Sequence[Response]) -> Response:
    """`/v1/models` of who was asked, with the served precision of all processes."""
    contents = read_all(responses)
    return write_json(responses[0], replace_precision(contents[0], contents))


def replace_precision(content: Any, contents: Sequence[Any]) -> Any:
    """The same content, with the served precision of each version over all contents in the place of its own."""
    if isinstance(content, list):
        return [replace_precision(entry, contents) for entry in content]
    if not isinstance(content, dict):
        return content
    result = {key: replace_precision(value, contents) for key, value in content.items() if key != SERVED_PRECISION}
    if SERVED_PRECISION in content:
        place = content["name"], content["version"]
        precisions = [each for other in contents for each in list_precisions(other, place)]
        result[SERVED_PRECISION] = merge_precisions(precisions) if precisions else None
    return result


def list_precisions(content: dict[str, Any], place: tuple[str, int]) -> list[dict[str, Any]]:
    """The served precision of a version in one process's answer, if there is one."""
    models = content.get("models", [content])
    versions = [version for model in models for version in model["versions"]]
    return [
        version[SERVED_PRECISION]
        for version in versions
        if (version["name"], version["version"]) == place and version.get(SERVED_PRECISION) is not None
    ]


def merge_precisions(precisions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`ServedPrecision` of rows that several processes asked again."""
    rows = sum(each["rows"] for each in precisions)
    depths = dict.fromkeys(k for each in precisions for k in each["at"])
    promises = [each["promise_in_force"] for each in precisions if each["promise_in_force"] is not None]
    return {
        "rows": rows,
        "share": sum(each["share"] for each in precisions) / len(precisions),
        "alarm": any(each["alarm"] for each in precisions),
        "exact_answers": any(each["exact_answers"] for each in precisions),
        "promise_in_force": min(promises, default=None),
        "logprob_error_mean": weigh(precisions, "logprob_error_mean", "rows"),
        "logprob_error_max": max(each["logprob_error_max"] for each in precisions),
        "at": {k: merge_depths([each["at"][k] for each in precisions if k in each["at"]]) for k in depths},
    }


def merge_depths(depths: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`DepthPrecision` of rows that several processes asked again: of all so far, each had its own window."""
    trials, hits = sum(each["trials"] for each in depths), sum(each["hits"] for each in depths)
    evidence = [each["evidence"] for each in depths if each["evidence"] is not None]
    return {
        "promise": depths[0]["promise"],
        "precision": bound_share(hits, trials).model_dump(),
        "rows": trials,
        "trials": trials,
        "hits": hits,
        "lost_probability": weigh(depths, "lost_probability", "trials"),
        "alarm": any(each["alarm"] for each in depths),
        "alarms": sum(each["alarms"] for each in depths),
        "evidence": max(evidence, default=None),
    }


def weigh(entries: Sequence[dict[str, Any]], name: str, weight: str) -> float:
    """The mean of a field, weighted with another."""
    total = sum(entry[weight] for entry in entries)
    return float(sum(entry[name] * entry[weight] for entry in entries) / max(1, total))


def read_all(responses: Sequence[Response]) -> list[Any]:
    """The JSON of the successful ones; the first is one of them."""
    return [orjson.loads(response.body) for response in responses if response.is_success]


def write_json(response: Response, content: Any) -> Response:
    """The same response with another content."""
    return replace_body(response, orjson.dumps(content))
