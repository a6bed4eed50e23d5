"""Threads of MLIR, for a pipeline over many ops of a module that do not depend on each other.

In: a context without threads, as `make_context` creates it. `nova/passes/base.py` calls
`mlir_threads`. The threads of MLIR hold no GIL while the caller, who does, waits for them. So ops
with code in Python, such as those of the nova dialect, may not be in what they process.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nova.ir.bindings import ir


@contextmanager
def mlir_threads(context: ir.Context) -> Iterator[None]:
    """Inside, passes process ops in several threads, unless the system refuses them."""
    if not can_start(_count_threads()):
        yield
        return
    context.enable_multithreading(True)
    try:
        yield
    finally:
        context.enable_multithreading(False)


def can_start(count: int) -> bool:
    """Whether the process may have `count` more threads: LLVM aborts if one does not start."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return False  # each thread takes address space for its stack and its heap
    release = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=release.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        release.set()
        for thread in started:
            thread.join()
    return True


def _count_threads() -> int:
    """The size of LLVM's thread pool: a thread for each core that the process may use."""
    return len(os.sched_getaffinity(0))
