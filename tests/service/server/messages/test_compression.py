"""Bodies in gzip and deflate: what is read and written, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import BadInput, TooLarge, Unsupported
from shortlist.server.messages.compression import SERVED_ENCODINGS, choose_encoding, compress, decompress

KINDS = ["gzip", "deflate"]
MIB = 1 << 20


@given(st.binary(max_size=2000), st.sampled_from(KINDS), st.integers(0, 100))
def test_round_trips(content, kind, room):
    assert decompress(compress(content, kind), kind, len(content) + room) == content


@given(st.binary(max_size=2000))
def test_the_formats_are_those_of_other_programs(content):
    assert gzip.decompress(compress(content, "gzip")) == content
    assert zlib.decompress(compress(content, "deflate")) == content
    assert decompress(gzip.compress(content), "gzip", 2000) == content
    assert decompress(zlib.compress(content), "deflate", 2000) == content


@pytest.mark.parametrize("name", ["GZIP", " gzip ", "Gzip"])
def test_names_of_encodings_have_no_case(name):
    assert decompress(gzip.compress(b"content"), name, 100) == b"content"


@pytest.mark.parametrize("name", ["", "identity", " Identity"])
def test_no_encoding_leaves_the_body_as_it_is(name):
    body = b"content"
    assert decompress(body, name, 1) is body


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_of_what_comes_out(kind):
    body = compress(b"x" * 1000, kind)
    assert len(decompress(body, kind, 1000)) == 1000
    with pytest.raises(TooLarge, match="limit of 999 bytes when decompress"):
        decompress(body, kind, 999)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_before_it_is_inflated(kind):
    bomb = compress(bytes(256 * MIB), kind)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(bomb, kind, MIB)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


@given(st.binary(min_size=1, max_size=300), st.sampled_from(KINDS), st.data())
def test_truncated_bodies_are_refused(content, kind, data):
    whole = compress(content, kind)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BadInput):
        decompress(cut, kind, 1000)


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.binary(min_size=1, max_size=20))
def test_bytes_after_the_end_are_refused(content, kind, more):
    with pytest.raises(BadInput, match="goes on after its end"):
        decompress(compress(content, kind) + more, kind, 1000)


@given(st.binary(max_size=100), st.sampled_from(KINDS))
def test_other_bytes_are_refused(content, kind):
    with pytest.raises(BadInput):
        decompress(b"{" + content, kind, 1000)


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.integers(0, 400), st.integers(1, 255))
def test_damaged_bodies_are_read_or_refused(content, kind, at, change):
    body = bytearray(compress(content, kind))
    body[at % len(body)] ^= change
    with contextlib.suppress(BadInput, TooLarge):
        assert len(decompress(bytes(body), kind, 1000)) <= 1000


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "compress", "\xff" * 10_000])
def test_other_encodings_are_not_served(name):
    with pytest.raises(Unsupported, match=SERVED_ENCODINGS) as excinfo:
        decompress(b"x", name, 100)
    assert excinfo.value.status == 415
    assert len(str(excinfo.value)) < 250


CHOICES = {
    "": "identity",
    "gzip": "gzip",
    "deflate": "deflate",
    "GZIP": "gzip",
    "gzip, deflate": "gzip",
    "deflate, gzip": "deflate",
    "deflate;q=0.5, gzip;q=0.8": "gzip",
    "gzip;q=0.5,deflate;q=1.0": "deflate",
    "gzip; q=0.5 , identity;q=0.4": "gzip",
    "gzip;q=0.4, identity": "identity",
    "identity, gzip": "gzip",
    "gzip;q=0": "identity",
    "gzip;q=0, deflate;q=0.001": "deflate",
    "br": "identity",
    "br, zstd, gzip;q=0.1": "gzip",
    "*": "identity",
    "gzip;q=x": "identity",
    "gzip;level=9": "identity",
    "gzip;q=": "identity",
    "gzip;q=nan": "identity",
    ",,;,gzip,": "gzip",
}


@pytest.mark.parametrize("accept", CHOICES)
def test_the_client_chooses(accept):
    assert choose_encoding(accept) == CHOICES[accept]


@given(st.text(max_size=50) | st.text("gzipdeflatenty;q=0.1,* ", max_size=50))
def test_any_header_chooses_something(accept):
    assert choose_encoding(accept) in ("identity", "gzip", "deflate")
