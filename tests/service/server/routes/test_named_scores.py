"""Log-probabilities of classes that are asked for by name."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist

from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(3, seed=6).contexts
NAMES, IDS = [["", "item-3"], ["item-5", ""], ["item-7", "item-9"]], [[-1, 3], [5, -1], [7, 9]]


def test_they_stand_where_their_names_do(small_server, head):
    body = {"model": "lm", "contexts": ROWS.tolist(), "ids": NAMES, "exact": True}
    answer = small_server.http.post("/v1/score", json=body).raise_for_status().json()["logprobs"]
    found = np.array([[-np.inf if value is None else value for value in row] for row in answer])
    np.testing.assert_allclose(found, head.logprobs(ROWS, IDS, exact=True), atol=1e-5)


@pytest.mark.parametrize("max_rows", [1, 4096])  # in requests of one row each, rows have other numbers of names
def test_a_client_gives_them_in_the_same_places(small_server, head, max_rows):
    with shortlist.Client(small_server.url, max_rows=max_rows) as client:
        found = client.logprobs("lm", ROWS, NAMES, exact=True)
        np.testing.assert_allclose(found, head.logprobs(ROWS, IDS, exact=True), atol=1e-5)
        ragged = client.logprobs("lm", ROWS, [["item-3"], [], ["item-7", "item-9"]], exact=True)
        np.testing.assert_allclose(ragged, head.logprobs(ROWS, [[3], [], [7, 9]], exact=True), atol=1e-5)
