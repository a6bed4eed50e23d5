"""A bounded, thread-safe LRU cache of values that are expensive to build (single flight).

`nova.api.compile` keeps compiled programs in one; every jitted function has its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

_all: weakref.WeakSet[SingleFlight] = weakref.WeakSet()


class SingleFlight(Generic[T]):
    """Values by key. One thread builds a key and the others wait for it; different keys build
    concurrently. Beyond `bound` values the least recently used one is evicted; also while their
    total size exceeds `most_bytes()`, by `weigh` of each when it is built. The last one stays.
    """

    def __init__(
        self,
        bound: int,
        weigh: Callable[[T], int] | None = None,
        most_bytes: Callable[[], int] | None = None,
    ):
        self.bound = bound
        self.evictions = 0
        """Number of values evicted because there were too many, or too many bytes."""
        self.nbytes = 0
        """Total bytes of the values."""
        self._weigh, self._most_bytes = weigh, most_bytes
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        self.renew_locks()
        _all.add(self)

    def renew_locks(self) -> None:
        """Forget the builds in progress: their threads do not exist in a forked child."""
        self._lock = threading.Lock()
        # Reentrant: a build may request its own key again, which must not deadlock.
        self._building: dict[Hashable, threading.RLock] = {}

    def get(self, key: Hashable, build: Callable[[], T]) -> tuple[T, bool]:
        """The value of `key`, and whether it was cached; `build` creates a missing one."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key], True
            building = self._building.setdefault(key, threading.RLock())
        with building:
            with self._lock:
                if key in self._values:
                    return self._values[key], True
            try:
                value = build()
                weight = self._weigh(value) if self._weigh else 0
                with self._lock:
                    self._values[key] = value
                    self._weights[key] = weight
                    self.nbytes += weight
                    while self._is_full():
                        oldest, _ = self._values.popitem(last=False)
                        self.nbytes -= self._weights.pop(oldest)
                        self.evictions += 1
            finally:
                with self._lock:
                    self._building.pop(key, None)
            return value, False

    def values(self) -> list[T]:
        """All values, the least recently used first."""
        with self._lock:
            return list(self._values.values())

    def move(self, old: Hashable, new: Hashable) -> None:
        """Keep the value of `old` under `new`, once its full key is known."""
        with self._lock:
            if old in self._values:
                self._values[new] = self._values.pop(old)
                self._weights[new] = self._weights.pop(old)

    def discard(self, key: Hashable, value: T) -> None:
        """Forget `value`, unless another value has replaced it."""
        with self._lock:
            if self._values.get(key) is value:
                del self._values[key]
                self.nbytes -= self._weights.pop(key)

    def _is_full(self) -> bool:
        count = len(self._values)
        heavy = self._most_bytes is not None and self.nbytes > self._most_bytes()
        return count > self.bound or (heavy and count > 1)

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        """Forget every value; a build in progress is kept when it is done."""
        with self._lock:
            self._values.clear()
            self._weights.clear()
            self.nbytes = 0


def _renew_all() -> None:
    for values in list(_all):
        values.renew_locks()


os.register_at_fork(after_in_child=_renew_all)
