"""Bodies in gzip or deflate, as the Open Inference Protocol's clients send and ask for them."""

from __future__ import annotations

import zlib

from shortlist.core.checks import cut
from shortlist.errors import BadInput, TooLarge, Unsupported

IDENTITY = "identity"
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # deflate is zlib's format
ACCEPTED = ", ".join(WINDOW_BITS)
LEAST = 1024  # bytes; smaller answers grow rather than shrink
LEVEL = 1


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before compression, at most `limit` bytes; raises TooLarge, BadInput, Unsupported."""
    kind = encoding.strip().lower()
    if kind in ("", IDENTITY):
        return body
    if kind not in WINDOW_BITS:
        raise Unsupported(f"content encoding '{cut(encoding)}' is not served: send {ACCEPTED}, or the body as it is")
    machine = zlib.decompressobj(WINDOW_BITS[kind])
    try:
        found = machine.decompress(body, limit + 1)
    except zlib.error:
        raise BadInput(f"the body is not {kind}, as its Content-Encoding says") from None
    if len(found) > limit:
        raise TooLarge(f"the body is over the limit of {limit} bytes when decompressed: send fewer rows in one request")
    if not machine.eof or machine.unused_data:
        raise BadInput(f"the {kind} body is cut short or goes on after its end")
    return found


def compressed(content: bytes, encoding: str) -> bytes:
    """`content` in an encoding of `WINDOW_BITS`."""
    machine = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS[encoding])
    return machine.compress(content) + machine.flush()


def chosen(accept: str) -> str:
    """The encoding that an Accept-Encoding header prefers, among ours; `identity` where it asks for none."""
    wanted = [weighed(part) for part in accept.lower().split(",")]
    known = [(weight, name) for name, weight in wanted if name in WINDOW_BITS and weight > 0]
    if not known:
        return IDENTITY
    best = max(weight for weight, _ in known)
    plain = max((weight for name, weight in wanted if name == IDENTITY), default=0.0)
    return IDENTITY if plain > best else next(name for weight, name in known if weight == best)


def weighed(part: str) -> tuple[str, float]:
    """`gzip;q=0.5` as name and weight; a weight that is no number counts as 0."""
    name, _, parameter = part.partition(";")
    if not parameter.strip():
        return name.strip(), 1.0
    key, _, value = parameter.partition("=")
    try:
        return name.strip(), float(value) if key.strip() == "q" else 0.0
    except ValueError:
        return name.strip(), 0.0
