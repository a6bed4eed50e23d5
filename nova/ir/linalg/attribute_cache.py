"""Values read from MLIR attributes, computed once per attribute while passes run.

To print and parse the maps of a `linalg.generic` takes a hundred times as long as to look up the
attribute, and the passes of a compile read the same ones thousands of times. An attribute keeps
its context alive, so the cache lives no longer than the compile of a module (`compiler/driver.py`),
the import of a program or the outermost `run_pipeline` of a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_ACTIVE: ContextVar[dict[Any, Any] | None] = ContextVar("attribute_cache", default=None)


@contextmanager
def attribute_cache() -> Iterator[None]:
    """Inside, `read_cached` computes each value once."""
    if _ACTIVE.get() is not None:
        yield
        return
    cache: dict[Any, Any] = {}
    token = _ACTIVE.set(cache)
    try:
        yield
    finally:
        _ACTIVE.reset(token)
        cache.clear()  # threads of the work queue may still refer to it


def active_cache() -> dict[Any, Any]:
    """The cache for keys of attributes and types; outside of `attribute_cache`, an empty one."""
    cache = _ACTIVE.get()
    return {} if cache is None else cache


def read_cached(read: Callable[[Any], T], attribute: Any) -> T:
    """`read(attribute)`; every attribute must have one `read` function."""
    cache = _ACTIVE.get()
    if cache is None:
        return read(attribute)
    value: T | None = cache.get(attribute)
    if value is None:
        value = cache[attribute] = read(attribute)
    return value
