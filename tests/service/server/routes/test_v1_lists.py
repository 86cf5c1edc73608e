"""Routes of registered lists, and requests that refer to them."""

import numpy as np
import pytest
import shortlist
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.errors import BadInput, NotFound, TooLarge

from tests.support.layers import RunningServer, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=6).contexts
LISTS = [[5, 6, 7], [1], [200, 201, 202, 203]]


@pytest.fixture
def http(small_server):
    return small_server.http


def ask(http, allow, status=200, **fields):
    body = {"model": "lm", "contexts": ROWS.tolist(), "k": 2, "allow": allow} | fields
    response = http.post("/v1/topk", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_registered_lists_equal_those_of_a_request(http):
    assert http.put("/v1/lists/tree", json={"lists": LISTS}).json() == {"name": "tree", "lists": 3, "ids": 8}
    assert ask(http, {"list": "tree"})["ids"] == ask(http, LISTS)["ids"]
    assert ask(http, {"list": "tree", "rows": [2, 2, 0]})["ids"] == ask(http, [LISTS[2], LISTS[2], LISTS[0]])["ids"]
    free = ask(http, {"list": "tree", "rows": [-1, -1, -1]})
    assert free["ids"] == ask(http, list(range(300)))["ids"]
    (table,) = http.get("/v1/lists").json()["tables"]
    assert (table["name"], table["lists"], table["ids"]) == ("tree", 3, 8)
    assert http.delete("/v1/lists/tree").status_code == 200
    assert http.get("/v1/lists").json() == {"tables": []}
    assert ask(http, {"list": "tree"}, status=404)["error"].startswith("no lists are registered as 'tree'")
    assert http.delete("/v1/lists/tree").status_code == 404


def test_an_id_is_registered_once_in_each_list(small_server):
    """A list of one id four million times was copied for every row that it was of."""
    body = {"lists": [[7] * 1000, [8, 7, 8]]}
    with shortlist.Client(small_server.url) as client:
        for register in (
            lambda: client.register_lists("twice", body["lists"]),
            lambda: small_server.http.put("/v1/lists/twice", json=body),
        ):
            register()
            (table,) = small_server.http.get("/v1/lists").json()["tables"]
            assert (table["lists"], table["ids"]) == (2, 3)
            named = ask(small_server.http, {"list": "twice", "rows": [1, 1, 1]})
            assert named["ids"] == ask(small_server.http, [7, 8])["ids"]
            small_server.http.delete("/v1/lists/twice")


def test_one_list_holds_for_all_rows(http):
    http.put("/v1/lists/one", json={"lists": [[5, 6, 7]]})
    assert ask(http, {"list": "one"})["ids"] == ask(http, [5, 6, 7])["ids"]
    http.delete("/v1/lists/one")


def test_clients_register_binary_tables(small_server, head):
    table = RowLists.from_lists(LISTS)
    with shortlist.Client(small_server.url) as client:
        client.register_lists("a b?c", table)
        named = client.topk("lm", ROWS, 2, allow=NamedLists("a b?c", [2, 0, 1]))
        carried = client.topk("lm", ROWS, 2, allow=table.for_rows([2, 0, 1]))
        client.delete_lists("a b?c")
        with pytest.raises(NotFound, match="register them again"):
            client.topk("lm", ROWS, 2, ban=NamedLists("a b?c"))
    expected = head.topk(ROWS, 2, allow=[LISTS[2], LISTS[0], LISTS[1]])
    np.testing.assert_array_equal(named.ids, expected.ids)
    np.testing.assert_array_equal(carried.ids, expected.ids)


def test_a_list_that_was_empty_holds_from_the_next_request_on(small_server, head):
    best = head.topk(ROWS[:1], 2).ids[0]
    with shortlist.Client(small_server.url) as client:
        for ids in ([], best[:1].tolist()):
            client.register_lists("blocked", [ids])
            for _ in range(2):  # the second is read as the first was
                answer = client.topk("lm", ROWS[:1], 2, ban=NamedLists("blocked"))
                assert (best[0] in answer.ids[0]) == (not ids)
        client.delete_lists("blocked")
        with pytest.raises(NotFound, match="no lists are registered as 'blocked'"):
            client.topk("lm", ROWS[:1], 2, ban=NamedLists("blocked"))


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_clients_refuse_names_that_no_path_has(small_server, name):
    with shortlist.Client(small_server.url) as client, pytest.raises(BadInput, match="a name of lists is text"):
        client.register_lists(name, LISTS)


REFUSALS = {
    "no lists": ({}, "the field 'lists' is missing"),
    "lists of numbers": ({"lists": [1, 2]}, "lists must be a list of lists of ids"),
    "an id under 0": ({"lists": [[-1]]}, "a list holds id -1"),
    "text": ({"lists": [["1"]]}, "lists row 0 must be a list of whole numbers alone"),
    "another field": ({"lists": [], "ids": []}, "there is no field 'ids'"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_table_is_refused(http, name):
    body, sentence = REFUSALS[name]
    response = http.put("/v1/lists/wrong", json=body)
    assert response.status_code == 400
    assert sentence in response.json()["error"]


WRONG_REFERENCES = {
    "no name": ({}, "allow must be lists of ids, or an object of the name"),
    "another key": ({"list": "tree", "row": [1]}, "allow must be lists of ids, or an object of the name"),
    "a number too high": ({"list": "tree", "rows": [3, 0, 0]}, "a row has list 3 but the lists go from 0 to 2"),
    "too few numbers": ({"list": "tree", "rows": [1, 0]}, "allow has 2 rows for 3 contexts"),
    "ids of another model": ({"list": "large"}, "allow holds id 300 but classes go from 0 to 299"),
}


@pytest.mark.parametrize("name", WRONG_REFERENCES)
def test_wrong_references_are_refused(http, name):
    http.put("/v1/lists/tree", json={"lists": LISTS})
    http.put("/v1/lists/large", json={"lists": [[300]]})
    allow, sentence = WRONG_REFERENCES[name]
    assert sentence in ask(http, allow, status=400)["error"]
    for table in ("tree", "large"):
        http.delete(f"/v1/lists/{table}")


def test_a_server_holds_no_more_than_it_may(small_repository):
    flags = ("--list-tables", "1", "--list-bytes", "4000")
    with RunningServer(small_repository, *flags) as server, shortlist.Client(server.url) as client:
        client.register_lists("a", LISTS)
        with pytest.raises(TooLarge, match="1 tables of lists are registered"):
            client.register_lists("b", LISTS)
        with pytest.raises(TooLarge, match="over the limit of 4000"):
            client.register_lists("a", [range(1000)])
