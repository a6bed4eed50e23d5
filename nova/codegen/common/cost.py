"""How long a kernel takes, roughly: what tasks are sized by.

The speeds are those of one core of a common server. They are the same for every target, and not
measured: a file must not depend on the machine that wrote it.
"""

from __future__ import annotations

OPERATIONS_PER_NS = {"matrix": 64.0, "vector": 2.0, "host": 16.0}
"""Scalar operations (the unit of `nova.work`) by the kind of core work."""

BYTES_PER_NS = 8.0


def estimate_ns(core: str, operations: int, nbytes: int) -> float:
    """Nanoseconds of a kernel that computes and moves this much, whichever takes longer."""
    return max(operations / OPERATIONS_PER_NS[core], nbytes / BYTES_PER_NS)
