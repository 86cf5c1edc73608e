"""Shares: whatever others hold, something is left for whoever comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.server.scheduling.shares import Shares


def take_all(shares, *clients):
    """Each takes one after the other until nobody gets more; what each has."""
    while True:
        takers = [client for client in clients if shares.has_room(client, 1)]
        if not takers:
            return [shares.get(client) for client in clients]
        for client in takers:
            if shares.has_room(client, 1):
                shares.add(client, 1)


@pytest.mark.parametrize(
    ("clients", "expected"), [("a", [75]), ("ab", [43, 42]), ("abc", [30, 30, 30]), ("abcdefghij", [10] * 6 + [9] * 4)]
)
def test_clients_that_want_everything_get_equal_shares(clients, expected):
    shares = Shares(100)
    assert take_all(shares, *clients) == expected
    assert shares.has_room("somebody else", 1)


def test_a_share_that_is_given_back_is_there_again():
    shares = Shares(100)
    take_all(shares, "a")
    assert not shares.has_room("a", 1)
    shares.add("a", -75)
    assert (shares.held, shares.by_client, shares.count_clients("a")) == (0, {}, 1)
    assert shares.has_room("a", 75)
    assert not shares.has_room("a", 76)


def test_what_is_never_refused_counts():
    shares = Shares(100)
    shares.add("a", 500)
    assert not shares.has_room("b", 1)
    shares.add("a", -490)
    assert shares.has_room("b", 50)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 200), st.booleans()), max_size=60))
def test_the_limit_holds_and_nobody_is_counted_who_holds_nothing(steps):
    shares, held = Shares(100), dict.fromkeys("abcdef", 0)
    for client, amount, give_back in steps:
        if not give_back and not shares.has_room(client, amount):
            continue
        more = -min(amount, held[client]) if give_back else amount
        shares.add(client, more)
        held[client] += more
        assert shares.held == sum(held.values()) <= 100
        assert shares.by_client == {name: count for name, count in held.items() if count}
    assert shares.has_room("newcomer", 0)
    assert shares.has_room("newcomer", 1) == (shares.held < 99)
