"""Bodies in gzip or deflate, as the Open Inference Protocol's clients send and ask for them."""

from __future__ import annotations

import zlib

from shortlist.core.checks import cut
from shortlist.errors import BadInput, TooLarge, UnsupportedEncoding

IDENTITY_ENCODING = "identity"
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # deflate is zlib's format
SERVED_ENCODINGS = ", ".join(WINDOW_BITS)
MIN_COMPRESSED_BYTES = 1024  # smaller responses grow rather than shrink
COMPRESSION_LEVEL = 1


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before compression, at most `limit` bytes; raises TooLarge, BadInput, UnsupportedEncoding."""
    name = encoding.strip().lower()
    if name in ("", IDENTITY_ENCODING):
        return body
    if name not in WINDOW_BITS:
        sentence = f"content encoding '{cut(encoding)}' is not served: send {SERVED_ENCODINGS}, or the body as it is"
        raise UnsupportedEncoding(sentence, SERVED_ENCODINGS)
    machine = zlib.decompressobj(WINDOW_BITS[name])
    try:
        content = machine.decompress(body, limit + 1)
    except zlib.error:
        raise BadInput(f"the body is not {name}, as its Content-Encoding says") from None
    if len(content) > limit:
        raise TooLarge(
            f"the body is over the limit of {limit} bytes when decompressed: "
            "send fewer rows in one request, and numbers as binary data rather than JSON"
        )
    if not machine.eof or machine.unused_data:
        raise BadInput(f"the {name} body is cut short or goes on after its end")
    return content


def compress(content: bytes, encoding: str) -> bytes:
    """`content` in an encoding of `WINDOW_BITS`."""
    machine = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, WINDOW_BITS[encoding])
    return machine.compress(content) + machine.flush()


def choose_encoding(accept: str) -> str:
    """The encoding that an Accept-Encoding header prefers, among ours; `identity` where it asks for none."""
    weights = [parse_weight(part) for part in accept.lower().split(",")]
    choices = [(weight, name) for name, weight in weights if name in WINDOW_BITS and weight > 0]
    if not choices:
        return IDENTITY_ENCODING
    best = max(weight for weight, _ in choices)
    plain = max((weight for name, weight in weights if name == IDENTITY_ENCODING), default=0.0)
    return IDENTITY_ENCODING if plain > best else next(name for weight, name in choices if weight == best)


def parse_weight(part: str) -> tuple[str, float]:
    """`gzip;q=0.5` as name and weight; a weight that is no number counts as 0."""
    name, _, parameter = part.partition(";")
    if not parameter.strip():
        return name.strip(), 1.0
    key, _, value = parameter.partition("=")
    try:
        return name.strip(), float(value) if key.strip() == "q" else 0.0
    except ValueError:
        return name.strip(), 0.0
