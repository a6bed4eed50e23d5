"""Pauses Python's garbage collector during a compile, and while Nova is imported.

A compile creates a million short-lived wrappers of MLIR values, which die by reference count. They
would trigger collections that walk every object of the process and free nothing: with other large
libraries loaded, a tenth of the time. `build`, `text_contents`, `build_module` and `translate` are
wrapped in this, and so are the calls of a sandbox child.
Imported modules stay alive too: collecting among them takes a tenth of their load time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_gc() -> Iterator[None]:
    """Disable automatic collection inside, and restore the previous state.

    Of two concurrent compiles, the first to end restarts the collector: a compile that found it
    stopped leaves it stopped.
    """
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
