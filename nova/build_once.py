"""A bounded memory of things that take long to build, for many threads.

`nova.compiler` keeps compiled programs in one, and every jitted function its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class BuildOnce(Generic[T]):
    """Values by key. One thread builds a key and the others wait for it; keys do not wait for
    each other. Beyond `bound` values the least recently used one goes."""

    def __init__(self, bound: int):
        self._bound = bound
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        # Reentrant: what is built may ask for its own key again, which must not block for ever.
        self._building: dict[Hashable, threading.RLock] = {}

    def get(self, key: Hashable, build: Callable[[], T]) -> tuple[T, bool]:
        """The value of `key`, and whether it was there; `build` makes one that was not."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key], True
            turn = self._building.setdefault(key, threading.RLock())
        with turn:
            with self._lock:
                if key in self._values:
                    return self._values[key], True
            try:
                value = build()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self._bound:
                        self._values.popitem(last=False)
            finally:
                with self._lock:
                    self._building.pop(key, None)
            return value, False

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        """Forget every value; what is being built now is kept when it is done."""
        with self._lock:
            self._values.clear()
