"""The bounded cache: never more than its bound, and what is in use stays."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st
from shortlist.server.messages.bounded_cache import BoundedCache


@given(st.integers(1, 9), st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=200))
def test_it_holds_the_latest_value_of_a_key_or_none_and_never_more_than_its_bound(bound, steps):
    cache, latest = BoundedCache(bound), {}
    for index, (is_put, key) in enumerate(steps):
        if is_put:
            cache.put(key, index)
            latest[key] = index
            assert cache.get(key) == index
        else:
            assert cache.get(key) in (None, latest.get(key))
        assert len(cache) <= bound


def test_an_entry_in_use_survives_any_number_of_others():
    cache = BoundedCache(10)
    cache.put("used", 1)
    for other in range(1000):
        cache.put(other, other)
        assert cache.get("used") == 1


def test_what_nobody_uses_is_forgotten():
    cache = BoundedCache(10)
    cache.put("unused", 1)
    for other in range(10):
        cache.put(other, other)
    assert cache.get("unused") is None


class SlowLength(dict):
    """A dictionary that lets `other` run once its length is asked, for as long as that gets on."""

    def __init__(self, entries, other):
        super().__init__(entries)
        self.other = other

    def __len__(self):
        length = super().__len__()
        if not self.other.ident:
            self.other.start()
            self.other.join(0.2)
        return length


def test_two_threads_at_the_bound_forget_one_generation_only():
    cache = BoundedCache(8)
    for key in range(4):
        cache.put(key, key)
    other = threading.Thread(target=cache.put, args=("other", 1))
    cache.recent = SlowLength(cache.recent, other)
    cache.put("this", 1)
    other.join()
    assert [cache.older.get(key) for key in range(4)] == [0, 1, 2, 3]
    assert cache.recent == {"this": 1, "other": 1}
