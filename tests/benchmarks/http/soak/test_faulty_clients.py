"""Each faulty client sends what its name says."""

from benchmarks.http.soak.faulty_clients import change_length


def test_lies_change_the_length_alone():
    request = b"POST / HTTP/1.1\r\nContent-Length: 300\r\n\r\n" + b"x" * 300
    assert change_length(request, 200) == request.replace(b"300", b"500")
    assert change_length(request, -200) == request.replace(b"300", b"100")
