"""Cost model: the estimated time of a kernel, by which tasks are sized.

The rates are those of one core of a common server. They are the same for every target, and not
measured: a compiled file must not depend on the machine that wrote it.
"""

from __future__ import annotations

OPERATIONS_PER_NS = {"matrix": 64.0, "vector": 2.0, "host": 16.0}
"""Scalar operations (the unit of `nova.work`) per nanosecond, by core type."""

BYTES_PER_NS = 8.0


def estimate_ns(core: str, operations: int, nbytes: int) -> float:
    """Estimated nanoseconds of a kernel: the larger of compute and memory time (roofline)."""
    return max(operations / OPERATIONS_PER_NS[core], nbytes / BYTES_PER_NS)
