"""Contexts that programs of Nova's own API use one after the other.

A new context registers the dialects and, in its first passes, the patterns of all their ops: that
takes as long as to lower a small program. `reused_context` lends a context that an earlier compile
has given back. Attributes and types stay in a context until it is freed, so one is lent for a
limited number of ops. Texts of unknown origin get contexts of their own (`make_context`).

`nova/compiler/driver.py` borrows contexts for plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.ir.resources import constants_of

_MOST_IDLE = 4
_MOST_OPS = 1_000
# Contexts that are not in use, each with the number of ops that it has been lent for.
_idle: list[tuple[ir.Context, int]] = []


@contextmanager
def reused_context(ops: int) -> Iterator[ir.Context]:
    """A context for a program of `ops` ops, which no other thread uses at the same time.

    After an error it is not lent again: the traceback may refer to ops of it.
    """
    try:
        context, spent = _idle.pop()
    except IndexError:
        context, spent = make_context(), 0
    yield context
    spent += ops
    has_constants = any(True for _ in constants_of(context))
    if spent <= _MOST_OPS and len(_idle) < _MOST_IDLE and not has_constants:
        _idle.append((context, spent))
