"""What is read from a connection."""

import pytest

from benchmarks.http.client import connection
from benchmarks.http.client.connection import ConnectionLost, RawResponse


def test_a_response_is_read_once_it_is_whole():
    whole = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\ncontent-length: 2\r\n\r\n{}"
    assert all(connection.parse_response(whole[:end]) is None for end in range(len(whole)))
    assert connection.parse_response(whole) == RawResponse(429, {"retry-after": "3", "content-length": "2"}, b"{}")
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert connection.parse_response(interim) is None
    assert connection.parse_response(interim * 2 + whole) == connection.parse_response(whole)
    with pytest.raises(ConnectionLost, match="no HTTP"):
        connection.parse_response(b"garbage\r\n\r\n")
