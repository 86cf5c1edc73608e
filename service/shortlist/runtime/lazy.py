"""What is made when it is first asked for, by one thread for all, and can be made in a process that was forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Value = TypeVar("Value")


class Lazy(Generic[Value]):
    """A value that `make` returns, once.

    Unlike `cached_property`, it holds no lock that a fork leaves locked for ever in the child, while another thread
    made the value.
    """

    def __init__(self, make: Callable[[], Value], *, is_own: bool = False) -> None:
        """is_own: each process makes its own, as of threads, which no fork copies."""
        self.make, self.is_own = make, is_own
        self.lock = threading.Lock()
        self.value: Value | None = None
        LAZY_VALUES.add(self)

    def __call__(self) -> Value:
        """The value; raises what making it raises, and then it is made anew at the next call."""
        value = self.value
        if value is not None:
            return value
        with self.lock:
            if self.value is None:
                self.value = self.make()
            return self.value

    def renew(self) -> None:
        """Called in a process that was just forked."""
        self.lock = threading.Lock()
        if self.is_own:
            self.value = None


LAZY_VALUES: WeakSet[Lazy[Any]] = WeakSet()


def renew_all() -> None:
    """Called in a process that was just forked."""
    for lazy in list(LAZY_VALUES):
        lazy.renew()


os.register_at_fork(after_in_child=renew_all)
