"""Checks that there is address space for a compile: LLVM aborts when an allocation fails.

`require_room` is called before the compiler is loaded (`nova.api.compile`) and before a module is
compiled (`driver.py`).
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from nova.errors import CompileMemoryError

# Memory of a small compile, and the one-time cost of the MLIR and LLVM libraries.
_ROOM = 96 << 20
_LIBRARIES = 340 << 20


def require_room() -> None:
    """CompileMemoryError if the limit on address space (`ulimit -v`) leaves too little."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    needed = _ROOM if "llvmlite" in sys.modules else _ROOM + _LIBRARIES
    if soft - used < needed:
        raise CompileMemoryError(
            f"{max(0, soft - used) >> 20} MiB of address space are left, and a compile needs "
            f"{needed >> 20} MiB or more",
            hint="raise the limit (ulimit -v), or load a program that was compiled elsewhere",
        )
