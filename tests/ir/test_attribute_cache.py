"""Values read from attributes: once per attribute while passes run, and never kept after them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.ir.linalg.attribute_cache import attribute_cache, read_cached


def _read(attribute: Any) -> str:
    _calls.append(str(attribute))
    return str(attribute).upper()


_calls: list[str] = []


def test_each_attribute_is_read_once_inside() -> None:
    _calls.clear()
    with make_context():
        one, same, other = (ir.StringAttr.get(text) for text in ("a", "a", "b"))
        with attribute_cache(), attribute_cache():  # the inner one uses the cache of the outer one
            assert [read_cached(_read, a) for a in (one, same, other)] == ['"A"', '"A"', '"B"']
        assert _calls == ['"a"', '"b"']
        assert read_cached(_read, one) == read_cached(_read, one) == '"A"'
    assert len(_calls) == 4


def test_a_context_is_freed_after_the_passes() -> None:
    context = make_context()
    freed = weakref.ref(context)
    with context, attribute_cache():
        read_cached(_read, ir.StringAttr.get("a"))
    del context
    gc.collect()
    assert freed() is None
