"""Random valid infer requests of every kind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import numpy as np
import orjson

from tests.support.layers import CLASSES, DIM

REGION, REGION_BYTES = "fuzz", 8192
INPUT_PLACES, OUTPUT_PLACES = (0, 2048), (4096, 6144)  # offsets of inputs and outputs in the region
ROW_COUNTS = (0, 1, 1, 1, 2, 5)
REQUESTED_KS = (1, 2, 5, 10)
OUTPUT_NAMES = ("ids", "logprobs", "scored", "labels")
CONTEXT_POOL = np.random.default_rng(0).standard_normal((64, DIM)).astype(np.float32)


@dataclass
class Valid:
    """A request before it is put together. memory: what the shared region holds, by offset."""

    content: dict
    blobs: list[bytes] = field(default_factory=list)
    memory: dict[int, bytes] = field(default_factory=dict)
    raw: bool = False

    def body(self) -> tuple[bytes, str | None]:
        """The request's body, and the value of the header that says how long its JSON is."""
        if self.raw:
            return b"".join(self.blobs), "0"
        text = dump_json(self.content)
        return b"".join([text, *self.blobs]), str(len(text)) if self.blobs else None


def dump_json(content: object) -> bytes:
    """JSON, also of numbers that orjson does not know."""
    try:
        return orjson.dumps(content)
    except TypeError:
        return json.dumps(content).encode()


def make_valid_request(random: Random) -> Valid:
    """A valid request of a random kind, as JSON and binary parts."""
    if random.random() < 0.03:
        return Valid({}, [CONTEXT_POOL[random.randrange(64)].tobytes()], raw=True)
    request = Valid({})
    rows = random.choice(ROW_COUNTS)
    scoring = random.random() < 0.15
    add_inputs(request, random, rows, scoring)
    parameters = choose_parameters(random, scoring)
    add_outputs(request, random, scoring, parameters)
    if parameters or random.random() < 0.2:
        request.content["parameters"] = parameters
    if random.random() < 0.3:
        request.content["id"] = random.choice(("", "7", "a b", "Ж" * 5, '"', str(random.randrange(10**6))))
    return request


def add_inputs(request: Valid, random: Random, rows: int, scoring: bool) -> None:
    """The contexts, and ids or lists."""
    request.content["inputs"] = []
    start = random.randrange(64 - rows)
    add_tensor(
        request, random, "context", CONTEXT_POOL[start : start + rows], random.choice(("FP32", "FP32", "FP16", "BF16"))
    )
    for name in ["ids"] if scoring else [name for name in ("allow", "ban") if random.random() < 0.15]:
        add_tensor(request, random, name, choose_ids(random, rows), "INT64")
    if not request.blobs:
        random.shuffle(request.content["inputs"])


def choose_ids(random: Random, rows: int) -> np.ndarray:
    """Ids for all rows, [m] or [1, m], or of each, [rows, m]."""
    shape = random.choice(((random.randrange(6),), (1, random.randrange(6)), (rows, random.randrange(1, 6))))
    count = int(np.prod(shape))
    return np.array([random.randrange(-1, CLASSES) for _ in range(count)], np.int64).reshape(shape)


def add_tensor(request: Valid, random: Random, name: str, values: np.ndarray, datatype: str) -> None:
    """As JSON, binary, or in shared memory."""
    entry = {"name": name, "shape": list(values.shape), "datatype": datatype}
    request.content["inputs"].append(entry)
    how = random.choice(("binary", "binary", "json", "memory"))
    if how == "json":
        entry["datatype"] = "INT64" if datatype == "INT64" else "FP32"
        entry["data"] = (values if random.random() < 0.5 else values.reshape(-1)).tolist()
        return
    blob = encode_numbers(values, datatype)
    place = next((place for place in INPUT_PLACES if place not in request.memory), None)
    if how == "memory" and place is not None:
        request.memory[place] = blob
        entry["parameters"] = describe_region(place, len(blob))
    else:
        request.blobs.append(blob)
        entry["parameters"] = {"binary_data_size": len(blob)}


def encode_numbers(values: np.ndarray, datatype: str) -> bytes:
    """The numbers of an array as a tensor's raw bytes."""
    if datatype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype({"FP32": np.float32, "FP16": np.float16, "INT64": np.int64}[datatype]).tobytes()


def describe_region(offset: int, size: int) -> dict:
    """Parameters of a tensor in shared memory."""
    place = {"shared_memory_region": REGION, "shared_memory_byte_size": size}
    return place | ({"shared_memory_offset": offset} if offset else {})


def choose_parameters(random: Random, scoring: bool) -> dict:
    """Random parameters of the whole request."""
    choices = {
        "exact": lambda: random.random() < 0.5,
        "timeout": lambda: random.choice((0, 1, 10**6, 2**40)),
        "priority": lambda: random.randrange(3),
        "binary_data_output": lambda: random.random() < 0.7,
        "temperature": lambda: 0.5,
    }
    if not scoring:
        choices["k"] = lambda: random.choice(REQUESTED_KS)
    return {name: choice() for name, choice in choices.items() if random.random() < 0.3}


def add_outputs(request: Valid, random: Random, scoring: bool, parameters: dict) -> None:
    """Some of the outputs, each as binary, JSON, classes or in shared memory; or none, which means all."""
    if random.random() < 0.4:
        return
    available = OUTPUT_NAMES[:2] if scoring else OUTPUT_NAMES
    names = random.sample(available, random.randint(1, len(available)))
    places = list(OUTPUT_PLACES)
    classes = 0 if scoring else random.choice((0, 0, 1, 3))
    if parameters.get("k", classes) < classes:
        classes = parameters["k"]
    request.content["outputs"] = [choose_output(random, name, places, classes) for name in names]


def choose_output(random: Random, name: str, places: list[int], classes: int) -> dict:
    """A random output that the request asks for."""
    parameters = {}
    if random.random() < 0.5:
        parameters["binary_data"] = random.random() < 0.6
    if name == "logprobs" and classes:
        parameters["classification"] = classes
    elif places and random.random() < 0.15:
        parameters |= describe_region(places.pop(), 2048)
    return {"name": name} | ({"parameters": parameters} if parameters or random.random() < 0.3 else {})
