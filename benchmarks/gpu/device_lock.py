"""Take turns on one GPU: processes that compile concurrently measure one after the other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

LOCK_VARIABLE = "NOVA_BENCH_LOCK"
"""Names a file that processes lock while they measure; without it nobody waits."""


@contextmanager
def exclusive_device() -> Iterator[None]:
    """Wait until no other process measures, and keep the others waiting meanwhile."""
    path = os.environ.get(LOCK_VARIABLE)
    if path is None:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
