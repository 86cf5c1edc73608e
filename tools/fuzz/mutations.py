"""Mutations of a request: of its JSON, its text, its bytes, its header."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from .valid import Valid

DEEP_JSON = "[" * 1000 + "]" * 1000  # as deep as JSON is read, and deeper than Python likes to print
BOTTOMLESS_JSON = b"[" * 250_000
LONG_TEXT = "x" * 2000
JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 16, 17, 301, 10**6, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
    -(2**63), 0.0, 0.5, 3e38, 1e39, -1e308, 5e-324, "", "0", "context", "ids", "allow", "ban", "logprobs", "scored",
    "fuzz", "FP32", "FP16", "BF16", "INT64", "INT32", "FP64", "BYTES", "BOOL", "fp32", LONG_TEXT, "\0", "é", [], {},
    [[]], [None], [True], [0], [1, 16], [0, 16], [1, 2**62], [2**62, 0], [0, 2**63], [1] * 65, [[1.0] * 16],
    {"k": 1}, [{}],
)  # fmt: skip
JSON_KEYS = (
    "id", "inputs", "outputs", "parameters", "name", "shape", "datatype", "data", "k", "exact", "timeout", "priority",
    "binary_data", "binary_data_size", "binary_data_output", "classification", "shared_memory_region",
    "shared_memory_byte_size", "shared_memory_offset", "triton_enable", "sequence_id", "", "unknown",
)  # fmt: skip
SHARED_MEMORY_KEYS = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
KEYS_BY_PLACE = {  # of the request, an input, an output: its own, and those of its parameters
    "": (
        ("id", "inputs", "outputs", "parameters"),
        ("k", "exact", "timeout", "priority", "binary_data_output", "triton_x"),
    ),
    "inputs": (("name", "shape", "datatype", "data", "parameters"), ("binary_data_size", *SHARED_MEMORY_KEYS)),
    "outputs": (("name", "parameters"), ("binary_data", "classification", *SHARED_MEMORY_KEYS)),
}
NUMBER_TEXTS = (
    b"-1",
    b"0",
    b"1e5",
    b"1e400",
    b"-0",
    b"0.1",
    b"9" * 400,
    b"18446744073709551616",
    b"NaN",
    b"00",
    b"1E-9",
)
HEADER_VALUES = (
    "",
    " ",
    "0",
    "1",
    "-1",
    "+5",
    "0x10",
    "1e2",
    "\u00b2",
    "9" * 5,
    "9" * 19,
    "9" * 30,
    "1.0",
    "a",
    "00000000",
    "5 5",
)
KEY_PATTERN = re.compile(rb'"(?:k|shape|exact|name|data|id|inputs|parameters|datatype|outputs|timeout)":')
NUMBER_PATTERN = re.compile(rb"\d+")


def choose_place(content: Any, random: Random) -> tuple[Any, Any]:
    """Choose a container somewhere in the content, and a key or index of it, None where it is empty."""
    while True:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        if not keys:
            return content, None
        key = random.choice(keys)
        child = content[key]
        if not isinstance(child, dict | list) or random.random() < 0.3:
            return content, key
        content = child


def choose_value(random: Random) -> Any:
    return deepcopy(random.choice(JSON_VALUES))  # what is put into a list must not be put into all later ones


def replace(content: Any, random: Random) -> None:
    put(content, random, lambda value: choose_value(random))


def nudge(content: Any, random: Random) -> None:
    put(content, random, lambda value: value + random.choice((-1, 1)) if isinstance(value, int | float) else [value])


def deepen(content: Any, random: Random) -> None:
    """Put a mark in place of a value, which `mutate` replaces by deep lists."""
    put(content, random, lambda value: "DEEP")


def put(content: Any, random: Random, change: Callable[[Any], Any]) -> None:
    inside, key = choose_place(content, random)
    if key is not None:
        inside[key] = change(inside[key])


def drop(content: Any, random: Random) -> None:
    inside, key = choose_place(content, random)
    if key is not None:
        del inside[key]


def add(content: Any, random: Random) -> None:
    inside, _ = choose_place(content, random)
    value = choose_value(random)
    if isinstance(inside, dict):
        inside[random.choice(JSON_KEYS)] = value
    else:
        inside.insert(random.randrange(len(inside) + 1), value)


def again(content: Any, random: Random) -> None:
    """An entry twice, the second time perhaps under another name."""
    entries = content.get(random.choice(("inputs", "outputs"))) if isinstance(content, dict) else None
    if isinstance(entries, list) and entries:
        entry = random.choice(entries)
        if isinstance(entry, dict) and random.random() < 0.5:
            entry = entry | {"name": random.choice(("context", "ids", "allow", "ban"))}
        entries.append(entry)


def swap(content: Any, random: Random) -> None:
    (one, first), (other, second) = choose_place(content, random), choose_place(content, random)
    if first is None or second is None or one is other:
        return
    value = other[second]
    if not isinstance(value, dict | list) and not isinstance(one[first], dict | list):
        one[first], other[second] = value, one[first]


def tamper(content: Any, random: Random) -> None:
    """Give a field of the protocol, in its place, any value."""
    if not isinstance(content, dict):
        return
    part = random.choice(list(KEYS_BY_PLACE))
    entries = content.get(part) if part else [content]
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if entries:
        entry = random.choice(entries)
        fields, parameters = KEYS_BY_PLACE[part]
        if random.random() < 0.4:
            entry[random.choice(fields)] = choose_value(random)
        elif isinstance(entry.setdefault("parameters", {}), dict):
            entry["parameters"][random.choice(parameters)] = choose_value(random)


STRUCTURE = (tamper, tamper, tamper, replace, replace, replace, nudge, deepen, drop, drop, add, add, again, swap)


def flip(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body))
    return body[:at] + bytes([body[at] ^ 1 << random.randrange(8)]) + body[at + 1 :]


def insert(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body) + 1)
    return body[:at] + random.randbytes(random.choice((1, 1, 4, 64))) + body[at:]


def delete(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body))
    return body[:at] + body[at + random.choice((1, 1, 4, 64)) :]


def truncate(body: bytes, random: Random) -> bytes:
    return body[: random.randrange(len(body))]


def repeat(body: bytes, random: Random) -> bytes:
    start = random.randrange(len(body))
    return body + body[start:] if random.random() < 0.7 else body + body


def key_twice(body: bytes, random: Random) -> bytes:
    matches = list(KEY_PATTERN.finditer(body))
    if not matches:
        return body
    at, key = random.choice(matches).start(), random.choice(matches)[0]
    return body[:at] + key + random.choice((b"null,", b"1,", b"[],", b"{},", b'"x",', b"true,")) + body[at:]


def other_number(body: bytes, random: Random) -> bytes:
    matches = list(NUMBER_PATTERN.finditer(body[:400]))
    if not matches:
        return body
    at = random.choice(matches)
    return body[: at.start()] + random.choice(NUMBER_TEXTS) + body[at.end() :]


def bottomless(body: bytes, random: Random) -> bytes:
    if random.random() < 0.99:  # each takes as long as hundreds of others
        return body
    at = body.find(b":") + 1
    return body[:at] + BOTTOMLESS_JSON + body[at:]


BYTE_MUTATIONS = (
    flip,
    flip,
    insert,
    delete,
    truncate,
    repeat,
    key_twice,
    key_twice,
    other_number,
    other_number,
    bottomless,
)


def other_header(header: str | None, length: int, random: Random) -> str | None:
    """Choose another length of the JSON."""
    current = int(header) if header and header.isdecimal() else length
    near = (
        str(current + random.choice((-1, 1, 4, -4))),
        f" {current} ",
        str(length),
        str(length + 1),
        f"0{current}",
        None,
    )
    return random.choice(near) if random.random() < 0.6 else random.choice(HEADER_VALUES)


def mutate(request: Valid, random: Random, many: int) -> tuple[bytes, str | None]:
    """Mutate a request `many` times; returns its bytes and its header."""
    on_bytes = random.randint(0, many) if random.random() < 0.5 else 0
    for _ in range(many - on_bytes):
        random.choice(STRUCTURE)(request.content, random)
    body, header = request.body()
    deep = body.replace(b'"DEEP"', DEEP_JSON.encode())
    header = str(int(header) + len(deep) - len(body)) if header and not request.raw else header
    return mutate_bytes(deep, header, random, on_bytes)


def mutate_bytes(body: bytes, header: str | None, random: Random, many: int) -> tuple[bytes, str | None]:
    """Mutate bytes; where the JSON becomes longer or shorter, the header often follows."""
    for _ in range(many):
        if random.random() < 0.25:
            header = other_header(header, len(body), random)
        elif body:
            longer = random.choice(BYTE_MUTATIONS)(body, random)
            if header and header.isdecimal() and header != "0" and random.random() < 0.6:
                header = str(max(1, int(header) + len(longer) - len(body)))
            body = longer
    return body, header
