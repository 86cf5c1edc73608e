"""Registered lists: bounded in count, bytes and age."""

import numpy as np
import pytest
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.errors import BadInput, NotFound, TooLarge
from shortlist.server.codecs.named_lists import ListRegistry

from tests.support.clock import Clock

TABLE = RowLists.from_lists([[1, 2], [3]])


def make_registry(tables=3, size=1000, seconds=10.0):
    clock = Clock()
    return ListRegistry(tables, size, seconds, clock), clock


def test_lists_are_known_by_their_name_until_they_are_deleted():
    registry, _ = make_registry()
    registry.register("a", TABLE)
    assert registry.get("a") is TABLE
    assert registry.resolve(NamedLists("a")) is TABLE
    assert registry.resolve(NamedLists("a", np.array([1, -1]))).get_row(0).tolist() == [3]
    registry.register("a", RowLists.from_lists([[9]]))
    assert registry.get("a").get_row(0).tolist() == [9]
    registry.delete("a")
    for call in (registry.get, registry.delete):
        with pytest.raises(NotFound, match="no lists are registered as 'a', or not any more: register them again"):
            call("a")


def test_lists_that_are_not_used_are_forgotten():
    registry, clock = make_registry()
    for name in ("a", "b"):
        registry.register(name, TABLE)
    clock.now = 9
    registry.get("a")
    clock.now = 12
    assert [(each["name"], each["age_seconds"], each["idle_seconds"]) for each in registry.describe()] == [("a", 12, 3)]
    with pytest.raises(NotFound):
        registry.get("b")


def test_tables_are_counted():
    registry, clock = make_registry()
    for name in "abc":
        registry.register(name, TABLE)
    with pytest.raises(TooLarge, match="3 tables of lists are registered, as many as may be: delete some"):
        registry.register("d", TABLE)
    registry.register("a", TABLE)  # in place of another
    clock.now = 11
    registry.register("d", TABLE)


def test_bytes_are_counted():
    registry, _ = make_registry(size=200)
    registry.register("a", TABLE)
    (table,) = registry.describe()
    assert (table["lists"], table["ids"], table["bytes"]) == (2, 3, 3 * 4 + 3 * 8 + 2 * 8)
    with pytest.raises(TooLarge, match="over the limit of 200: delete some"):
        registry.register("b", RowLists.from_lists([range(40)]))
    registry.register("a", RowLists.from_lists([range(30)]))


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb"])
def test_names_are_short_and_printable(name):
    with pytest.raises(BadInput, match="a name of lists has 1 to 128 printable characters"):
        make_registry()[0].register(name, TABLE)
