"""Python's garbage collector stands still during a compile, and while Nova is imported.

A compile makes a million short-lived wrappers of MLIR values, which die by reference count. They
would start collections that walk everything the process holds, and find nothing: with other large
libraries loaded, a tenth of the time. `build`, `build_text` and `build_module` are wrapped in this.
Modules that are imported stay as well: to look among them is a tenth of the time they take to load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_gc() -> Iterator[None]:
    """No automatic collection inside; afterwards as it was.

    Of two compiles at the same time, the first to end starts the collector again: who found it
    stopped leaves it as it is.
    """
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
