"""`nova.range`: the loops of a kernel that the user claims to be parallel."""

from __future__ import annotations

import builtins

from nova.core.user_facing import user_facing


@user_facing
def range(*args: int) -> builtins.range:
    """A loop of a kernel whose iterations are independent; outside of kernels, Python's range.

    It is a KernelError if one iteration needs the result of another (docs/custom-ops.md).
    """
    return builtins.range(*args)
