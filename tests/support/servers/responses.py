"""What a response of the server must look like."""


def read_refusal(response, status=400):
    """The sentence of a failure, which has the right form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    sentence = response.json()["error"]
    assert "\n" not in sentence
    assert 8 < len(sentence) < 400
    return sentence


def expect_success(response):
    """Whether it was done, which there is nothing to say about."""
    assert (response.status_code, response.content) == (200, b""), response.text
